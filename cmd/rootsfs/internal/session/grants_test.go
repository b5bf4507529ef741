package session

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// For each limit and for the end, the stricter of a bound and a grant applies.
func TestBound(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	early, late := now.Add(time.Hour), now.Add(2*time.Hour)
	for _, tt := range []struct {
		name             string
		bound            Bound
		own, want        guard.Limits
		expires, wantEnd time.Time
	}{
		{name: "no bound", own: guard.Limits{OpsPerSecond: 5, MaxFile: 3}, want: guard.Limits{OpsPerSecond: 5, MaxFile: 3}, expires: late, wantEnd: late},
		{name: "grant without limits", bound: Bound{Expires: early, Limits: guard.Limits{MaxFile: 3, MaxWritten: 4, MaxCreated: 5, BytesInFlight: 6, Timeout: time.Second}},
			want: guard.Limits{MaxFile: 3, MaxWritten: 4, MaxCreated: 5, BytesInFlight: 6, Timeout: time.Second}, wantEnd: early},
		{name: "stricter grant", bound: Bound{Expires: late, Limits: guard.Limits{MaxFile: 30, MaxWritten: 40, MaxCreated: 50, BytesInFlight: 60, Timeout: time.Minute}},
			own:     guard.Limits{MaxFile: 3, MaxWritten: 4, MaxCreated: 5, BytesInFlight: 6, Timeout: time.Second},
			want:    guard.Limits{MaxFile: 3, MaxWritten: 4, MaxCreated: 5, BytesInFlight: 6, Timeout: time.Second},
			expires: early, wantEnd: early},
		{name: "laxer grant", bound: Bound{Expires: early, Limits: guard.Limits{MaxFile: 3, OpsPerSecond: 7}},
			own: guard.Limits{MaxFile: 30, OpsPerSecond: 70}, want: guard.Limits{MaxFile: 3, OpsPerSecond: 7, Burst: 7}, expires: late, wantEnd: early},
		{name: "the default burst is one second's", bound: Bound{Limits: guard.Limits{OpsPerSecond: 5}},
			own: guard.Limits{OpsPerSecond: 2000, Burst: 4000}, want: guard.Limits{OpsPerSecond: 5, Burst: 5}},
		{name: "a burst without a speed does not count", bound: Bound{Limits: guard.Limits{OpsPerSecond: 5, Burst: 9}},
			own: guard.Limits{Burst: 2}, want: guard.Limits{OpsPerSecond: 5, Burst: 9}},
		{name: "a speed below one", bound: Bound{Limits: guard.Limits{OpsPerSecond: 0.5}},
			own: guard.Limits{OpsPerSecond: 5, Burst: 3}, want: guard.Limits{OpsPerSecond: 0.5, Burst: 1}},
		{name: "a long timeout does not widen the default", bound: Bound{Limits: guard.Limits{Timeout: time.Hour}},
			want: guard.Limits{Timeout: rules.DefaultTimeout}},
		{name: "a large stage does not widen the default", bound: Bound{Limits: guard.Limits{MaxStage: 1 << 40}},
			want: guard.Limits{MaxStage: rules.DefaultMaxStage}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.bound.Apply(guard.Grant{Expires: tt.expires, Policy: guard.Policy{Limits: tt.own, OtherFileSystems: true}})
			if got.Policy.Limits != tt.want || !got.Expires.Equal(tt.wantEnd) || !got.Policy.OtherFileSystems {
				t.Errorf("%+v, ends %v\nwant %+v, %v", got.Policy.Limits, got.Expires, tt.want, tt.wantEnd)
			}
		})
	}
	one := Bound{OneFileSystem: true}.Apply(guard.Grant{Policy: guard.Policy{OtherFileSystems: true}})
	if one.Policy.OtherFileSystems {
		t.Error("other file systems are entered")
	}
	if (Bound{}).hasEnded(now) || !(Bound{Expires: now}).hasEnded(now) || (Bound{Expires: late}).hasEnded(now) {
		t.Error("hasEnded is wrong")
	}
}

// addSharing sets SharedBy of a root that is for one subject, if the server with that subject
// shares its consents.
func TestAddSharing(t *testing.T) {
	st := control.Status{
		Roots: []control.Root{{Name: "a", Subject: "s#1"}, {Name: "b", Subject: "s#2"}, {Name: "c"}},
		Files: []broker.Stats{{Subject: "s#2"}, {Subject: "s#1", SharedBy: "all"}, {SharedBy: "nobody in particular"}},
	}
	addSharing(&st)
	if st.Roots[0].SharedBy != "all" || st.Roots[1].SharedBy != "" || st.Roots[2].SharedBy != "" {
		t.Errorf("%+v", st.Roots)
	}
}
