//! What is tried.

#[path = "../../src/engine/gate.rs"]
pub mod gate;
#[path = "../../src/engine/journal/lanes.rs"]
pub mod lanes;
#[path = "../../src/engine/journal/progress.rs"]
pub mod progress;
#[path = "../../src/engine/journal/sleeper.rs"]
pub mod sleeper;

#[derive(Debug)]
pub enum EngineError {
    Stopping,
}

pub mod counters {
    use std::cell::Cell;

    loom::thread_local! {
        static STRIPE: Cell<usize> = Cell::new(0);
    }

    /// Chooses that of the thread.
    pub fn set_stripe(stripe: usize) {
        STRIPE.with(|own| own.set(stripe));
    }

    pub fn stripe_of_this_thread() -> usize {
        STRIPE.with(Cell::get)
    }
}
