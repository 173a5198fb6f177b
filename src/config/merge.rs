//! Layers laid over one another: a later one sets single keys of what an earlier one says, or adds guards.

use super::place::{Place, Problem};
use super::written::{Tables, Value, Values, Written, WrittenGuard};

/// All layers as one.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub tables: Tables,
    /// In the order in which they are first named.
    pub guards: Vec<MergedGuard>,
}

/// One guard over all layers.
#[derive(Debug)]
pub(super) struct MergedGuard {
    /// Key and place of the layer that names it first, for what is missing.
    pub key: String,
    pub place: Place,
    pub values: Values,
    /// The layer that named it last: one layer names a guard once.
    layer: usize,
}

impl MergedGuard {
    pub(super) fn name(&self) -> Option<&Value> {
        self.values.get("name")
    }
}

impl Merged {
    /// The value of a key in a table that is there once.
    pub(super) fn value(&self, table: &str, key: &str) -> Option<&Value> {
        self.tables.get(table)?.get(key)
    }

    /// Names of the guards so far.
    pub(super) fn names(&self) -> Vec<String> {
        self.guards.iter().filter_map(|guard| Some(guard.name()?.text().to_owned())).collect()
    }

    /// Lays one more layer, number `layer`, on top.
    pub(super) fn lay(&mut self, written: Written, layer: usize, problems: &mut Vec<Problem>) {
        for (name, values) in written.tables {
            self.tables.entry(name).or_default().extend(values);
        }
        for guard in written.guards {
            self.lay_guard(guard, layer, problems);
        }
    }

    fn lay_guard(&mut self, guard: WrittenGuard, layer: usize, problems: &mut Vec<Problem>) {
        let WrittenGuard { key, place, mut values } = guard;
        let name = values.get("name").map(|name| name.text().to_owned());
        let known =
            self.guards.iter_mut().find(|known| name.is_some() && known.name().map(Value::text) == name.as_deref());
        match known {
            Some(known) if known.layer == layer => {
                if let Some(written) = values.get("name") {
                    problems.push(Problem {
                        place: written.place.clone(),
                        key: written.key.clone(),
                        message: format!("there is a guard `{}` already", written.text()),
                    });
                }
            }
            Some(known) => {
                values.remove("name");
                known.values.extend(values);
                known.layer = layer;
            }
            None => self.guards.push(MergedGuard { key, place, values, layer }),
        }
    }
}
