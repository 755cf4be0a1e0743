//! Tasks by tid.

use rustc_hash::FxHashMap;

use crate::profilers::task_state::machine::Task;

/// A map whose look-up is short enough to be in line, also when it may add a task: two or three of them come with every
/// switch.
#[derive(Debug)]
pub struct Tasks {
    /// Where in `slots`.
    places: FxHashMap<i32, u32>,
    slots: Vec<(i32, Task)>,
    /// Places by the low bits of the tid, as they were when last looked up: most tasks come again soon.
    hints: [u32; HINTS],
}

const HINTS: usize = 256;

impl Default for Tasks {
    fn default() -> Tasks {
        Tasks { places: FxHashMap::default(), slots: Vec::new(), hints: [0; HINTS] }
    }
}

impl Tasks {
    #[inline]
    pub fn get(&self, tid: i32) -> Option<&Task> {
        self.slots.get(*self.places.get(&tid)? as usize).map(|(_, task)| task)
    }

    #[inline]
    pub fn get_mut(&mut self, tid: i32) -> Option<&mut Task> {
        self.slots.get_mut(*self.places.get(&tid)? as usize).map(|(_, task)| task)
    }

    /// Adds a task of which nothing is known, if it is not there.
    #[inline(always)]
    pub fn get_or_new(&mut self, tid: i32) -> &mut Task {
        let place = self.hints[tid as usize % HINTS] as usize;
        if self.slots.get(place).is_none_or(|(other, _)| *other != tid) {
            return self.find_or_add(tid);
        }
        &mut self.slots[place].1
    }

    /// As [`get`](Tasks::get_mut), if it was looked up lately.
    #[inline(always)]
    pub fn get_recent(&mut self, tid: i32) -> Option<&mut Task> {
        let place = self.hints[tid as usize % HINTS] as usize;
        self.slots.get_mut(place).filter(|(other, _)| *other == tid).map(|(_, task)| task)
    }

    #[inline(never)]
    fn find_or_add(&mut self, tid: i32) -> &mut Task {
        let place = match self.places.get(&tid) {
            Some(place) => *place,
            None => self.add(tid),
        };
        self.hints[tid as usize % HINTS] = place;
        &mut self.slots[place as usize].1
    }

    #[cold]
    fn add(&mut self, tid: i32) -> u32 {
        let place = self.slots.len() as u32; // tids have 32 bits
        self.slots.push((tid, Task::new()));
        self.places.insert(tid, place);
        place
    }

    pub fn remove(&mut self, tid: i32) -> Option<Task> {
        let place = self.places.remove(&tid)?;
        let (_, task) = self.slots.swap_remove(place as usize);
        if let Some((moved, _)) = self.slots.get(place as usize) {
            self.places.insert(*moved, place);
        }
        Some(task)
    }

    pub fn retain(&mut self, mut keeps: impl FnMut(i32, &Task) -> bool) {
        let before = self.slots.len();
        self.slots.retain(|(tid, task)| keeps(*tid, task));
        if self.slots.len() < before {
            self.places.clear();
            self.places.extend(self.slots.iter().zip(0..).map(|((tid, _), place)| (*tid, place)));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (i32, &Task)> {
        self.slots.iter().map(|(tid, task)| (*tid, task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_come_and_go() {
        let mut tasks = Tasks::default();
        for tid in 1..=5 {
            tasks.get_or_new(tid).since = tid as u64;
        }
        tasks.get_or_new(3).since = 30;
        assert_eq!(tasks.remove(2).map(|task| task.since), Some(2));
        assert!(tasks.remove(2).is_none() && tasks.get(2).is_none());
        let mut all: Vec<(i32, u64)> = tasks.iter().map(|(tid, task)| (tid, task.since)).collect();
        all.sort_unstable();
        assert_eq!(all, [(1, 1), (3, 30), (4, 4), (5, 5)]);
        tasks.retain(|_, task| task.since > 4);
        assert!(tasks.get_mut(1).is_none() && tasks.get_mut(4).is_none());
        assert_eq!((tasks.get(3).map(|task| task.since), tasks.get(5).map(|task| task.since)), (Some(30), Some(5)));
        assert_eq!(tasks.remove(5).map(|task| task.since), Some(5));
        assert_eq!(tasks.iter().count(), 1);
    }
}
