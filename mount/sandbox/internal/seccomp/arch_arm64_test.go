package seccomp

// modeCallsHere: this architecture has no further ones.
var modeCallsHere []modeCall
