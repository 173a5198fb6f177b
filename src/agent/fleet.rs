//! All guards of one agent: each a task of its own, started, told of a new configuration, and let go.

use super::board::Board;
use super::clock::Here;
use super::driver::{Driver, Order};
use super::rounds::{Hint, Rounds};
use super::standing::{From, Standing, standing};
use super::stuck::blocking;
use super::vitals::Vitals;
use crate::cloud::{Client, Hub};
use crate::config::{Config, Http, Metrics, Paths, Sources, kept_text};
use crate::gate::notify;
use crate::model::{GuardName, Reason};
use crate::record;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;

/// Longest that reading the configuration may take.
const READ: Duration = Duration::from_secs(20);

pub struct Fleet {
    sources: Sources,
    /// Of the start: neither state nor run dir can move under a running agent.
    paths: Paths,
    /// Likewise: what is listened on, and where metrics are written.
    http: Http,
    metrics: Metrics,
    here: Here,
    board: Arc<Board>,
    hints: broadcast::Sender<Hint>,
    stop: watch::Sender<bool>,
    orders: BTreeMap<GuardName, watch::Sender<Order>>,
    tasks: JoinSet<()>,
    vitals: Vitals,
    /// One client of EC2 for all guards. It asks nothing until a guard does.
    hub: Arc<Hub<Client>>,
}

impl Fleet {
    /// Starts every guard.
    pub fn start(
        sources: Sources,
        standing: &Standing,
        here: Here,
        board: Arc<Board>,
        hints: broadcast::Sender<Hint>,
        vitals: Vitals,
    ) -> Self {
        let (stop, _) = watch::channel(false);
        let Config { paths, http, metrics, guards: _ } = standing.config.clone();
        let mut fleet = Fleet {
            sources,
            paths,
            http,
            metrics,
            here,
            board,
            hints,
            stop,
            orders: BTreeMap::new(),
            tasks: JoinSet::new(),
            vitals,
            hub: Arc::new(Hub::new(Client::default())),
        };
        fleet.take(standing);
        fleet
    }

    /// Reads the configuration again. What cannot be used changes nothing but the status; what can is given to the guards.
    pub async fn reload(&mut self) {
        notify::reloading();
        let (sources, boot_id) = (self.sources.clone(), self.here.boot_id.clone());
        // Links are followed to tell devices and places apart, and may lead to a disk that hangs.
        let mut lines = match blocking(READ, move || standing(&sources, &boot_id)).await {
            Ok(Ok(standing)) => {
                self.take(&standing);
                Vec::new()
            }
            Ok(Err(error)) => error.lines(),
            Err(stuck) => vec![stuck.words("reading the configuration")],
        };
        if !lines.is_empty() {
            lines.push("the agent goes on with the configuration that it has".to_owned());
            self.complain(lines);
        }
        notify::ready();
    }

    fn take(&mut self, standing: &Standing) {
        match &standing.from {
            // The guards run on it already, or on something as old.
            From::LastValid { .. } if !self.orders.is_empty() => return self.complain(standing.problems()),
            From::LastValid { .. } => self.complain(standing.problems()),
            From::Written(loaded) => {
                self.complain(self.moved(&standing.config));
                if let Err(error) = record::store_kept_config(&self.paths.state, &kept_text(loaded, &self.sources.path))
                {
                    tracing::error!(event = "config.unkept", %error, "the valid configuration was not kept");
                }
                tracing::info!(
                    event = "config.read",
                    guards = standing.config.guards.len(),
                    "the configuration is valid"
                );
            }
        }
        self.orders.retain(|_, order| !order.is_closed());
        let config = Config { paths: self.paths.clone(), ..standing.config.clone() };
        self.board.configured(config.guards.iter().map(|guard| guard.name.clone()).collect());
        for guard in &config.guards {
            let held_back = standing.held_back.get(&guard.name).cloned().unwrap_or_default();
            match self.orders.get(&guard.name) {
                // The driver is the one to say what an open gate holds back: it may open at this moment.
                Some(order) => drop(order.send_replace(Order::Run(Box::new(guard.clone()), held_back))),
                None => self.spawn(&config, guard, held_back),
            }
        }
        for (name, order) in &self.orders {
            if config.guard(name).is_none() {
                order.send_replace(Order::Leave);
            }
        }
    }

    fn spawn(&mut self, config: &Config, guard: &crate::config::GuardConfig, held_back: Vec<Reason>) {
        let rounds = Rounds::new(guard.name.clone(), guard.mode, self.hints.subscribe());
        let lives = self.vitals.part(format!("guard {}", guard.name));
        let driver =
            Driver::new(guard.clone(), config, self.here.clone(), self.board.clone(), rounds, lives, self.hub.clone());
        let (order, orders) = watch::channel(Order::Run(Box::new(guard.clone()), held_back));
        self.orders.insert(guard.name.clone(), order);
        self.tasks.spawn(driver.run(self.stop.subscribe(), orders));
    }

    /// Says it in the log and in the status. No lines: all is well.
    fn complain(&self, lines: Vec<String>) {
        for line in &lines {
            tracing::error!(event = "config.unusable", "{line}");
        }
        self.board.complain(lines);
    }

    fn moved(&self, config: &Config) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, moved) in [("http", self.http != config.http), ("metrics", self.metrics != config.metrics)] {
            if moved {
                lines.push(format!("[{name}] is another now; the old one stays until the agent is started again"));
            }
        }
        for (name, old, new) in
            [("state", &self.paths.state, &config.paths.state), ("run", &self.paths.run, &config.paths.run)]
        {
            if old != new {
                lines.push(format!(
                    "paths.{name} is {} now; {} stays until the agent is started again",
                    new.display(),
                    old.display()
                ));
            }
        }
        lines
    }

    /// Tells every guard to end, and waits a while for that. Gates, mounts and etcds stay as they are.
    pub async fn end(mut self) {
        // Receivers are gone only when every guard has ended already.
        let _nobody_left = self.stop.send(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(20), ended).await.is_err() {
            tracing::warn!(event = "agent.impatient", "a guard hangs in the kernel; leaves without it");
        }
    }
}
