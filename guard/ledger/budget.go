package ledger

import "sync"

// Budget bounds an amount in use. A request for more than the whole Budget is admitted when
// nothing else is in use.
type Budget struct {
	mu      sync.Mutex // guards the fields below
	max     int64
	used    int64
	changed chan struct{}
}

// NewBudget returns a budget of max.
func NewBudget(max int64) *Budget { return &Budget{max: max} }

// TryAcquire takes n of the budget if it has room. If not, it returns a channel that is closed
// when some of the budget is released, so that the caller can try again.
func (b *Budget) TryAcquire(n int64) (changed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used == 0 || b.used+n <= b.max {
		b.used += n
		return nil, true
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed, false
}

// Release gives back n of the budget.
func (b *Budget) Release(n int64) {
	b.mu.Lock()
	b.used -= n
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	b.mu.Unlock()
}
