//! The memory limit of the control groups (cgroups) that the process is in.
//!
//! The kernel kills a process when its cgroup, or any cgroup above it, uses more memory than its
//! limit. A container sees its own cgroup as the root of `/sys/fs/cgroup`. A service of systemd
//! (`MemoryMax=`) sees the cgroups of the whole machine. It has to look up its own in
//! `/proc/self/cgroup`, and the place where that is mounted in `/proc/self/mountinfo`.
//!
//! The crate `sysinfo` does the same, but gives up if one of the files is missing. That happens in
//! a cgroup for which systemd has not switched the memory controller on: then only the cgroups
//! above it have limits.

use std::{
    fs,
    os::unix::ffi::OsStringExt,
    path::{Component, Path, PathBuf},
};

/// The limits of version 2. A process above `memory.high` is not killed, but slowed down until it
/// hardly runs, because the kernel cannot reclaim the memory of filters.
const LIMITS_V2: [&str; 2] = ["memory.max", "memory.high"];

/// The limit of version 1, where "none" is a number near 2^63.
const LIMIT_V1: &str = "memory.limit_in_bytes";

/// A file of version 1 with many lines. One line is the smallest limit of a cgroup and all cgroups
/// above it, including those that are not mounted here.
const STATISTICS_V1: &str = "memory.stat";
const HIERARCHY_V1: &str = "hierarchical_memory_limit";

/// Returns the smallest memory limit, in bytes, of the cgroup of this process and of the cgroups
/// above it; `None` if none has a limit. `root` is `/`, except in tests.
///
/// A file that is missing or cannot be read sets no limit.
pub fn memory_limit(root: &Path) -> Option<u64> {
    let read = |path: &str| fs::read(root.join(path)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mounts: Vec<Mount> = lines(&mounts).filter_map(Mount::parse).collect();
    let groups = lines(&groups).filter_map(Group::parse);
    let limits = groups.flat_map(|group| {
        let directories = group.directories(&mounts, root);
        directories
            .into_iter()
            .flat_map(move |directory| group.version.limits(&directory))
    });
    limits.min()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Returns the limits that a cgroup has of its own, and in version 1 also those above it.
    fn limits(self, directory: &Path) -> Vec<u64> {
        let number = |name: &str| {
            let text = fs::read_to_string(directory.join(name)).ok()?;
            // "max" means no limit.
            text.trim().parse().ok()
        };
        match self {
            Self::Two => LIMITS_V2.into_iter().filter_map(number).collect(),
            Self::One => {
                let statistics = fs::read_to_string(directory.join(STATISTICS_V1));
                let statistics = statistics.unwrap_or_default();
                let of_hierarchy = statistics.lines().find_map(|line| {
                    let (name, value) = line.split_once(' ')?;
                    value.parse().ok().filter(|_| name == HIERARCHY_V1)
                });
                number(LIMIT_V1).into_iter().chain(of_hierarchy).collect()
            }
        }
    }
}

/// A cgroup that this process is in and that can limit memory: a line of `/proc/self/cgroup`.
#[derive(Debug)]
struct Group {
    version: Version,
    /// The path from the root of its hierarchy, or of the process's cgroup namespace.
    path: PathBuf,
}

impl Group {
    /// Reads `hierarchy:controllers:path`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (hierarchy, controllers) = (fields.next()?, fields.next()?);
        let version = match (hierarchy, controllers) {
            (b"0", b"") => Version::Two,
            (_, controllers) if lists(controllers, b"memory") => Version::One,
            _ => return None,
        };
        let path = path(fields.next()?.to_vec());
        Some(Self { version, path })
    }

    /// Returns the directories of the cgroup and of the cgroups above it, as far as they are
    /// mounted.
    fn directories(&self, mounts: &[Mount], root: &Path) -> Vec<PathBuf> {
        let mut directories = Vec::new();
        for mount in mounts.iter().filter(|mount| mount.version == self.version) {
            let top = beneath(root, &mount.point);
            // A process that was moved out of its cgroup namespace has a path that begins with
            // "/..". A process in a container without a namespace has a path that is not mounted
            // there. The mounted cgroup is then above the process's own, or is all that can be seen
            // of it.
            let below = self.path.strip_prefix(&mount.top).unwrap_or(Path::new(""));
            let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            let below = below.components().take_while(|&part| is_plain(part));
            directories.push(top.clone());
            directories.extend(below.scan(top, |at, part| {
                at.push(part);
                Some(at.clone())
            }));
        }
        directories
    }
}

/// A place where a hierarchy of cgroups is mounted: a line of `/proc/self/mountinfo`.
#[derive(Debug)]
struct Mount {
    version: Version,
    /// The cgroup that is mounted.
    top: PathBuf,
    /// The directory that it is mounted at.
    point: PathBuf,
}

impl Mount {
    /// Reads `36 35 98:0 TOP POINT OPTIONS [optional...] - TYPE SOURCE SUPER-OPTIONS`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let (top, point) = (fields.nth(3)?, fields.next()?);
        let mut fields = fields.skip_while(|&field| field != b"-").skip(1);
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        let version = match kind {
            b"cgroup2" => Version::Two,
            b"cgroup" if lists(options, b"memory") => Version::One,
            _ => return None,
        };
        let [top, point] = [top, point].map(|field| path(unescaped(field)));
        Some(Self {
            version,
            top,
            point,
        })
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Returns whether a comma-separated list contains a name.
fn lists(list: &[u8], name: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|entry| entry == name)
}

fn path(bytes: Vec<u8>) -> PathBuf {
    std::ffi::OsString::from_vec(bytes).into()
}

/// Moves an absolute path beneath another root.
fn beneath(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Decodes a path: the kernel writes blanks, tabs, newlines and backslashes as `\040` and so on.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        let code = (byte == b'\\')
            .then(|| behind.split_at_checked(3))
            .flatten();
        let code = code.and_then(|(digits, behind)| {
            let digits = str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 8).ok()?, behind))
        });
        let (byte, behind) = code.unwrap_or((byte, behind));
        bytes.push(byte);
        rest = behind;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const V2_MOUNT: &str = "31 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
    const V1_MOUNT: &str =
        "33 25 0:29 / /sys/fs/cgroup/memory rw shared:12 - cgroup cgroup rw,memory\n";

    /// A root directory with files.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(groups: &str, mounts: &str) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine.write("proc/self/cgroup", groups);
            machine.write("proc/self/mountinfo", mounts);
            machine
        }

        fn write(&self, path: &str, text: impl ToString) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.to_string()).unwrap();
        }

        fn limit(&self) -> Option<u64> {
            memory_limit(self.0.path())
        }
    }

    #[test]
    fn a_service_has_the_limit_of_its_own_cgroup() {
        let machine = Machine::new("0::/system.slice/seenset.service\n", V2_MOUNT);
        assert_eq!(machine.limit(), None);
        let own = "sys/fs/cgroup/system.slice/seenset.service/memory.max";
        machine.write(own, "max\n");
        assert_eq!(machine.limit(), None);
        machine.write(own, GIB);
        assert_eq!(machine.limit(), Some(GIB));
        // The limits of other cgroups do not matter.
        machine.write("sys/fs/cgroup/system.slice/other.service/memory.max", 7);
        assert_eq!(machine.limit(), Some(GIB));
    }

    #[test]
    fn the_smallest_limit_above_counts() {
        let machine = Machine::new("0::/a.slice/b.slice/c.service\n", V2_MOUNT);
        // The memory controller is not switched on for the process's own cgroup.
        machine.write("sys/fs/cgroup/a.slice/memory.max", 3 * GIB);
        machine.write("sys/fs/cgroup/a.slice/b.slice/memory.max", 4 * GIB);
        assert_eq!(machine.limit(), Some(3 * GIB));
        machine.write("sys/fs/cgroup/a.slice/b.slice/memory.high", 2 * GIB);
        assert_eq!(machine.limit(), Some(2 * GIB));
        machine.write("sys/fs/cgroup/memory.max", GIB);
        assert_eq!(machine.limit(), Some(GIB));
    }

    #[test]
    fn a_container_has_the_limit_of_the_root_that_it_sees() {
        for groups in ["0::/\n", "0::/../../other\n", "0::/docker/1234\n"] {
            let machine = Machine::new(groups, V2_MOUNT);
            machine.write("sys/fs/cgroup/memory.max", GIB);
            assert_eq!(machine.limit(), Some(GIB), "{groups}");
        }
        // Version 1, without a cgroup namespace: the process's own cgroup is the one that is
        // mounted.
        let mount = "9 8 0:7 /docker/12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let machine = Machine::new("5:cpu,memory:/docker/12/inner\n", mount);
        machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", 2 * GIB);
        assert_eq!(machine.limit(), Some(2 * GIB));
        machine.write("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", GIB);
        assert_eq!(machine.limit(), Some(GIB));
    }

    #[test]
    fn version_1_says_what_is_above_and_not_mounted() {
        let machine = Machine::new("5:memory:/a/b\n2:cpu:/c\n", V1_MOUNT);
        let none = 9_223_372_036_854_771_712_u64;
        machine.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", none);
        machine.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", 3 * GIB);
        assert_eq!(machine.limit(), Some(3 * GIB));
        let statistics = format!("cache 1\nhierarchical_memory_limit {GIB}\ntotal_cache 2\n");
        machine.write("sys/fs/cgroup/memory/a/b/memory.stat", statistics);
        assert_eq!(machine.limit(), Some(GIB));
    }

    #[test]
    fn both_versions_may_be_mounted() {
        let v2 = "32 31 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let groups = "4:memory:/app\n1:name=systemd:/x\n0::/app\n";
        let machine = Machine::new(groups, &[V1_MOUNT, v2].concat());
        machine.write("sys/fs/cgroup/memory/app/memory.limit_in_bytes", GIB);
        assert_eq!(machine.limit(), Some(GIB));
        machine.write("sys/fs/cgroup/unified/app/memory.max", GIB / 2);
        assert_eq!(machine.limit(), Some(GIB / 2));
    }

    #[test]
    fn what_is_strange_sets_no_limit() {
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(memory_limit(nothing.path()), None);
        for (groups, mounts) in [
            ("", ""),
            ("0::", "a b c d e f - cgroup2"),
            (":::\n0::/x", "- - - - - - - - -"),
            ("0::/x", "1 2 3 / /sys rw - ext4 /dev/sda rw"),
        ] {
            assert_eq!(Machine::new(groups, mounts).limit(), None, "{groups:?}");
        }
        let machine = Machine::new("0::/a\n", V2_MOUNT);
        for text in ["", "-1", "1e9", "18446744073709551616", "\u{0}"] {
            machine.write("sys/fs/cgroup/a/memory.max", text);
            assert_eq!(machine.limit(), None, "{text:?}");
        }
    }

    #[test]
    fn paths_with_blanks_are_found() {
        let mount = "31 23 0:27 / /sys/control\\040groups rw - cgroup2 cgroup2 rw\n";
        let machine = Machine::new("0::/my service\n", mount);
        machine.write("sys/control groups/my service/memory.max", GIB);
        assert_eq!(machine.limit(), Some(GIB));
        assert_eq!(unescaped(b"a\\134b\\9c\\04"), b"a\\b\\9c\\04");
    }
}
