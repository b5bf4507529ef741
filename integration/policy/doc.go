// Package policy tests the patterns of a root as its users meet them. It compares random
// trees, policies and operations with a slow model, through mount, tree and broker. It
// tries the ways around a pattern, each of which works without the pattern, and looks for
// differences between a hidden name and a missing one. It fills quotas from several sides
// at once, and runs git, npm and go in roots with the built-in protections.
package policy
