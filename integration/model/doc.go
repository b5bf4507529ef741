// Command model has Spin search models of the order of a revocation for faults, and
// shows that it finds them in models that are wrong.
//
//	go run ./integration/model [-only REGEXP]
package main
