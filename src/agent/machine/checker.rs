//! The machine and the decisions under a model checker: every state of a small world is visited, and in each of them what must
//! hold is asked.
//!
//! The world (`checker/world.rs`) is abstract; what decides in it is not. Each answer becomes the real evidence
//! (`checker/readings.rs`), goes through the real `step`, which calls the real `may_format` and `may_start`, over what the real
//! `record::fold` makes of the ledgers; each action that comes back is done to the world piece by piece (`checker/doing.rs`), and
//! between any two pieces the agent may be killed, the machine lose its power or its instance, EC2 fail, or a person do what
//! people do (`checker/happenings.rs`).
//!
//! A breadth-first search of our own instead of a crate for it: states are compared as they are and not by a hash of 64 bits;
//! the evidence, and so the guards, are kept once and named by number, without which a state would be kilobytes; and *a healthy
//! volume is opened in the end* is asked of the whole graph (from every healthy state a state with an open gate can be reached
//! by steps that are no fault), where stateright's `eventually` says nothing of a path that returns to where it was.

mod doing;
mod happenings;
mod known;
mod properties;
mod readings;
mod scenarios;
mod world;

use doing::Nature;
use happenings::{Sort, Step, after, steps};
use known::Known;
use properties::{Broken, is_healthy, is_open};
use std::collections::HashMap;
use world::World;

/// A search: where it begins, and what may go wrong.
struct Search {
    name: &'static str,
    starts: World,
    nature: Nature,
    sorts: Vec<Sort>,
    known: Known,
}

/// What a search has seen.
struct Visited {
    states: usize,
    transitions: usize,
    opened: usize,
    healthy: usize,
    /// Different guards, of which the states are made.
    guards: usize,
}

struct Node {
    parent: u32,
    step: Step,
}

impl Search {
    /// Visits everything. The first state in which something does not hold ends it, with the shortest way there.
    fn run(mut self) -> Result<Visited, String> {
        let mut numbers: HashMap<World, u32> = HashMap::from([(self.starts, 0)]);
        let mut nodes: Vec<Option<Node>> = vec![None];
        let mut level = vec![(0_u32, self.starts)];
        // Steps that are no fault, backwards: where could one have come from?
        let mut from: Vec<Vec<u32>> = vec![Vec::new()];
        let mut flags = vec![self.flags(&self.starts)];
        let mut transitions = 0;
        while !level.is_empty() {
            let mut next_level = Vec::new();
            for (number, world) in level {
                for step in steps(&self.known, &world, &self.sorts) {
                    transitions += 1;
                    let next = match after(&mut self.known, &world, step, self.nature) {
                        Ok(next) => next,
                        Err(Broken(words)) => return Err(self.told(&words, &nodes, number, Some(step))),
                    };
                    let fresh = u32::try_from(nodes.len()).expect("fewer states");
                    let reached = *numbers.entry(next).or_insert(fresh);
                    if reached == fresh {
                        nodes.push(Some(Node { parent: number, step }));
                        from.push(Vec::new());
                        flags.push(self.flags(&next));
                        next_level.push((fresh, next));
                    }
                    if step.fault().is_none() && reached != number {
                        from[reached as usize].push(number);
                    }
                }
            }
            level = next_level;
        }
        drop(numbers);
        for m in self.starts.all_masters() {
            let open: Vec<u32> =
                (0..).zip(&flags).filter(|(_, flags)| flags.open & (1 << m) != 0).map(|(n, _)| n).collect();
            let mut reaches = vec![false; nodes.len()];
            let mut stack = open;
            while let Some(number) = stack.pop() {
                if !std::mem::replace(&mut reaches[number as usize], true) {
                    stack.extend(&from[number as usize]);
                }
            }
            let stuck = (0_u32..)
                .zip(&flags)
                .find(|(number, flags)| flags.healthy & (1 << m) != 0 && !reaches[*number as usize]);
            if let Some((number, _)) = stuck {
                return Err(self.told(&format!("master {m} never opens a healthy volume"), &nodes, number, None));
            }
        }
        let count = |of: fn(&Flags) -> u8| flags.iter().filter(|flags| of(flags) != 0).count();
        Ok(Visited {
            states: nodes.len(),
            transitions,
            opened: count(|f| f.open),
            healthy: count(|f| f.healthy),
            guards: self.known.guards.len(),
        })
    }

    fn flags(&self, world: &World) -> Flags {
        let mut flags = Flags { open: 0, healthy: 0 };
        for m in world.all_masters() {
            flags.open |= u8::from(is_open(world, m)) << m;
            flags.healthy |= u8::from(is_healthy(&self.known, world, m, self.nature)) << m;
        }
        flags
    }

    /// The way to a state, step by step.
    fn told(&mut self, words: &str, nodes: &[Option<Node>], number: u32, last: Option<Step>) -> String {
        let mut way = Vec::new();
        let mut at = number;
        while let Some(node) = &nodes[at as usize] {
            way.push(node.step);
            at = node.parent;
        }
        way.reverse();
        let mut world = self.starts;
        let mut text = format!("{}: {words}\n", self.name);
        for step in way {
            let job = match step {
                Step::Works(m, _) => self.known.queues.get(world.agent(m).queue).first().copied(),
                _ => None,
            };
            world = after(&mut self.known, &world, step, self.nature).expect("it went well before");
            text.push_str(&format!("  {step:?} {job:?}\n"));
        }
        if let Some(last) = last {
            text.push_str(&format!("  {last:?}\n"));
        }
        for m in world.all_masters() {
            text.push_str(&format!("{m}: {:?}\n", world.master(m)));
            if let Some(agent) = world.master(m).agent {
                text.push_str(&format!("   {:?}\n", self.known.guards.get(agent.guard).state));
            }
            text.push_str(&format!("   {:?}\n", self.known.lines(world.master(m).ledger)));
        }
        for v in world.all_volumes() {
            text.push_str(&format!(
                "volume {v}: {:?}\n   {:?}\n",
                world.volume(v),
                self.known.lines(world.volume(v).ledger)
            ));
        }
        text
    }
}

/// What is true of a state, a bit for each master.
struct Flags {
    open: u8,
    healthy: u8,
}
