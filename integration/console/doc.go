// Package console drives the console as its owner does: the page in a real browser
// (Chromium, by playwright-core), rootsfs top in a real terminal (tmux), with real
// mounts, and a confined server (server.py) that asks for consent.
//
// flows.mjs drives the page, and reports a line of JSON for each flow. package.json lists the
// packages that it needs from npm, and the one that the page itself uses (uPlot).
// `make screenshots` writes screenshots/.
//
// Without Chromium, npm, tmux or FUSE the tests are skipped on a laptop; where CI is
// set they fail.
package console
