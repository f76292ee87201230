//! Tasks that a person or CI runs from a clone.
