// Package policy tests the policy of a root through a mount, the methods of vfs.Tree and the
// broker. It compares random operations under random patterns with a slow, simple model of the
// patterns. It tries bypasses of a pattern, each of which works without the pattern, and looks for
// differences between a hidden name and a missing one. It fills quotas through the mount and the
// broker at once, fills the disk of the audit log, and runs git, other version control systems, npm
// and go in roots with the built-in protections.
package policy
