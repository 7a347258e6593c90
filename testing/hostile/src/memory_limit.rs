//! A memory limit for the server like that of a container: a cgroup of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

/// The root of groups and the name of the file with the limit, for cgroup v1 and v2.
const VERSIONS: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

/// A cgroup, removed on drop. The kernel kills a process in it that exceeds the limit.
pub struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// Creates the group. Needs root.
    pub fn new(bytes: u64) -> Result<Self> {
        let of_this = |(root, _): &(&str, &str)| Path::new(root).join("cgroup.procs").exists();
        let version = VERSIONS.iter().find(|version| of_this(version));
        let (root, file) = version.context("the kernel has no cgroups")?;
        let group = Path::new(root).join(format!("seenset-hostile-{}", std::process::id()));
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        let limit = Self { group };
        let path = limit.group.join(file);
        fs::write(&path, bytes.to_string())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(limit)
    }

    /// Returns a command that runs another command in the group.
    pub fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ >\"$0\" && exec \"$@\""])
            .arg(self.group.join("cgroup.procs"));
        command
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}
