package config

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
)

// Each limit is parsed in the form of --limit. An error says which values are accepted.
func TestLimitSet(t *testing.T) {
	var got guard.Limits
	for text, bad := range map[string]string{
		"ops_per_second=0.5": "-1 NaN many 1e10", "burst=1_000": "many 0.5 -1 3000000000", "bytes-in-flight=64M": "0 1.5 10X -1",
		"max_file=4096": "0 big", "max_written=1G": "0", "max_created=0x10": "-1 some", "max_stage=2G": "0 -1", "timeout=90s": "0s 25h soon 5", "idle=1h": "10ms 9000h",
	} {
		name, value, _ := strings.Cut(text, "=")
		l, err := KeyNamed(Limits(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Set(&got, value); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for b := range strings.FieldsSeq(bad) {
			if err := l.Set(&got, b); err == nil || !strings.HasPrefix(err.Error(), b+": write a ") {
				t.Errorf("%s=%s: %v", name, b, err)
			}
		}
	}
	want := guard.Limits{OpsPerSecond: 0.5, Burst: 1000, BytesInFlight: 64 << 20, MaxFile: 4096, MaxWritten: 1 << 30, MaxCreated: 16, MaxStage: 2 << 30,
		Timeout: 90 * time.Second, Idle: time.Hour}
	if got != want || len(Limits()) != 9 {
		t.Errorf("%+v", got)
	}
	if _, err := KeyNamed(Limits(), "max_fil"); err == nil || !strings.Contains(err.Error(), "write one of ops_per_second, burst, ") {
		t.Error(err)
	}
}

// Stricter returns the smaller of two limits, without rounding a large one; 0 means no limit.
// IsNegative recognizes a negative value of each limit.
func TestStricter(t *testing.T) {
	const large = math.MaxInt64
	a := guard.Limits{OpsPerSecond: 2, MaxFile: large, MaxWritten: 5, Timeout: time.Second}
	b := guard.Limits{OpsPerSecond: 1.5, MaxFile: large - 1, MaxCreated: 7, Timeout: time.Minute}
	want := guard.Limits{OpsPerSecond: 1.5, MaxFile: large - 1, MaxWritten: 5, MaxCreated: 7, Timeout: time.Second}
	if ab, ba := Stricter(Limits(), a, b), Stricter(Limits(), b, a); ab != want || ba != want {
		t.Errorf("%+v, %+v, want %+v", ab, ba, want)
	}
	for _, l := range Limits() {
		negative := guard.Limits{OpsPerSecond: -1, Burst: -1, BytesInFlight: -1, MaxFile: -1, MaxWritten: -1, MaxCreated: -1, MaxStage: -1, Timeout: -1, Idle: -1}
		if !l.IsNegative(&negative) || l.IsNegative(&a) {
			t.Errorf("%s: IsNegative is wrong", l.Name())
		}
	}
}
