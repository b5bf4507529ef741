// Package notify shows notifications on the desktop, through the desktop's own service
// (org.freedesktop.Notifications on the session bus), if there is one.
//
// Show never waits and returns no error: without a bus, or if the bus does not answer, no
// notification is shown. Only Notifier.Failed gets an error. In the body of a notification,
// invisible characters are escaped and markup is shown as text.
//
// Perhaps nobody sees a notification. So a notification takes no answer, and decides nothing.
//
// The exported functions may be called concurrently.
package notify

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/rootsfs/rootsfs/guard/names"
)

const (
	timeout = 5 * time.Second // of the whole call, connection included
	// maxText is how many bytes of a body are shown, counted before the body is escaped.
	maxText = 300
	// maxCalls bounds the calls in progress, because a service may be slow to answer.
	maxCalls = 4
)

// Notifier shows notifications. Make it with New.
type Notifier struct {
	running chan struct{}
	// Failed, if not nil, gets the error of each failed call. It is not called for a notification
	// that Show drops: if there is no address of a bus, or if maxCalls are in progress.
	Failed func(error)
}

// New returns a Notifier. failed may be nil.
func New(failed func(error)) *Notifier {
	return &Notifier{running: make(chan struct{}, maxCalls), Failed: failed}
}

// Show shows a notification in a goroutine. It drops the notification if maxCalls are in
// progress. summary must be a text of rootsfs itself, because it is not escaped. body may hold
// foreign text, and is escaped.
func (n *Notifier) Show(summary, body string) {
	// Use only the variable. Without an address, or with "autolaunch:", ConnectSessionBus would
	// start another bus by dbus-launch of PATH.
	address := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	if address == "" {
		return
	}
	select {
	case n.running <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-n.running }()
		if err := show(address, summary, body); err != nil && n.Failed != nil {
			n.Failed(err)
		}
	}()
}

func show(address, summary, body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// Open a connection for each call: one that is kept would end with the desktop.
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("the session bus: %w", err)
	}
	defer conn.Close()
	service := conn.Object("org.freedesktop.Notifications", "/org/freedesktop/Notifications")
	call := service.CallWithContext(ctx, "org.freedesktop.Notifications.Notify", 0,
		"rootsfs", uint32(0), "dialog-password", summary, text(body), []string{},
		map[string]dbus.Variant{"urgency": dbus.MakeVariant(byte(1))}, int32(-1))
	if call.Err != nil {
		return fmt.Errorf("the desktop's notifications: %w", call.Err)
	}
	return nil
}

// markup escapes the characters that notifications read as markup.
var markup = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// text cuts foreign text to maxText bytes and escapes it for the body of a notification. Names in the
// text may have been quoted already: quotation marks and backslashes stay as they are.
func text(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return markup.Replace(names.EscapeQuoted(s))
}
