//go:build race

package files

const raceDetector = true
