// Package policy tests the patterns of a root as its users meet them: random
// trees, policies and operations against a slow model through mount, tree and
// broker; the ways around a pattern, each of which works where the pattern is not;
// what tells a hidden name from one that is not there; quotas filled from several
// sides at once; and git, npm and go in roots with the built-in protections.
package policy
