// Package console drives the console as its owner does: the page in a real browser
// (Chromium, by playwright-core), rootsfs top in a real terminal (tmux), with real
// mounts, and a confined server (server.py) that asks for consent.
//
// The page is driven by flows.mjs, which reports a line of JSON for each flow; what
// it needs from npm is in package.json, with what the page itself takes from there
// (uPlot). `make screenshots` writes screenshots/.
//
// Without Chromium, npm, tmux or FUSE the tests are skipped on a laptop; where CI is
// set they fail.
package console
