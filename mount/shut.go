package mount

import "context"

// Shut ends what the mount shows while its registry lives on: from now on every
// request through it is refused, and what it had shown before is taken back, as by
// a revocation, when Shut returns. The roots stay live for everybody else. It is
// for a mount that is taken down before its session ends: unmounting takes nothing
// away from whoever holds the mount. An error says what could not be taken back.
func (m *Mount) Shut(ctx context.Context) error {
	m.shut.Store(true)
	return m.reg.TakeBack(ctx, m.opt.Subject)
}
