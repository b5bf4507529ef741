// Package console drives the console as its owner does: the page in a real browser
// (Chromium, by playwright-core), and rootsfs top in a real terminal (tmux). The mounts are
// real, and a confined server (server.py) asks for consent.
//
// flows.mjs drives the page, and reports a line of JSON for each flow. package.json lists the
// packages that it needs from npm, and the one that the page itself uses (uPlot).
// `make screenshots` writes screenshots/.
//
// If FUSE or a program that a test needs is missing (Chromium, node, npm, python3 or tmux), the
// test is skipped. If the environment variable CI is set, the test fails instead.
package console
