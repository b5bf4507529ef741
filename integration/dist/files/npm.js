#!/usr/bin/env node
// Starts the program of this platform's package in the place of Node, with the same
// arguments, standard streams and environment.
"use strict";

const packages = { "linux x64": "@SCOPE@/linux-x64", "linux arm64": "@SCOPE@/linux-arm64" };
const platform = `${process.platform} ${process.arch}`;
const name = packages[platform];
if (!name) {
  fail(`rootsfs runs on Linux, on x64 and arm64; this is ${platform}.`);
}
let program;
try {
  program = require.resolve(`${name}/bin/rootsfs`);
} catch {
  fail(`the package ${name} is missing, which holds the program: install again without --omit=optional.`);
}
const args = process.argv.slice(2);
if (process.execve) {
  process.execve(program, [program, ...args], process.env); // does not return
}
start(program, args);

function fail(text) {
  console.error(`rootsfs: ${text}`);
  process.exit(1);
}

// start runs the program as a child where Node cannot be replaced (before 22.15): it gets
// Node's signals, and Node ends as the program does.
function start(program, args) {
  const child = require("child_process").spawn(program, args, { stdio: "inherit" });
  const signals = ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGINT", "SIGUSR1", "SIGUSR2"];
  const terminal = require("tty").isatty(0);
  for (const s of signals) {
    // A terminal sends its own signals to the program as well.
    const sent = terminal && (s === "SIGINT" || s === "SIGQUIT");
    process.on(s, () => sent || child.kill(s));
  }
  child.on("error", (err) => fail(err.message));
  child.on("exit", (code, signal) => {
    if (!signal) {
      process.exit(code);
    }
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    setInterval(() => {}, 1 << 30); // until the signal arrives
  });
}
