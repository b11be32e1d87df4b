//! From a checkpoint to a packed weight file.
