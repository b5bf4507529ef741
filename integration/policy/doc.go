// Package policy tests the patterns of a root as its users meet them: random
// trees, policies and operations against a slow model, and git, npm and go in
// roots with the built-in protections.
package policy
