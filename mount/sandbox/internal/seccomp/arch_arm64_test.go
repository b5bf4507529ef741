package seccomp

// modeCallsHere are the cases of TestFilterNoSetID that only this architecture has: none.
var modeCallsHere []modeCall
