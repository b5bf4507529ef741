package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/console"
)

// noBrowser says why no browser is started here; nil: one may be.
func noBrowser(uid int) error {
	switch {
	case uid == 0:
		return errors.New("a browser is not for root")
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" && os.Getenv("BROWSER") == "" && os.Getenv("WSL_DISTRO_NAME") == "":
		// xdg-open would look for a browser that draws over this terminal.
		return errors.New("there is no desktop here (neither DISPLAY nor WAYLAND_DISPLAY is set)")
	}
	return nil
}

// openPage starts the browser with a file that leads to the link: the link itself
// on a command line could be read by every user of the machine. The file is removed
// when the link is used or ctx ends, and then gone is closed; failed is told if the
// browser did not start after all.
func openPage(ctx context.Context, link string, waits func() bool, failed func(error)) (gone <-chan struct{}, err error) {
	name, err := pointer(link)
	if err != nil {
		return nil, err
	}
	// A session of its own: the browser, which may be started by this, is not to end
	// with Ctrl-C here, nor to draw over this terminal.
	browser := exec.Command("xdg-open", name)
	browser.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := browser.Start(); err != nil {
		return nil, errors.Join(err, os.Remove(name))
	}
	ended := make(chan error, 1)
	go func() { ended <- browser.Wait() }()
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		defer os.Remove(name)
		tick := time.NewTicker(time.Second / 4)
		defer tick.Stop()
		for waits() {
			select {
			case <-ctx.Done():
				return
			case err := <-ended:
				if err != nil {
					failed(fmt.Errorf("xdg-open could not do it: %w", err))
				}
				ended = nil // the browser may still be about to read the file
			case <-tick.C:
			}
		}
	}()
	return removed, nil
}

// pointer makes the file that leads to the link, which only this user can read,
// and removes those that killed consoles left.
func pointer(link string) (name string, err error) {
	state, err := config.StateDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return "", err
	}
	const pattern = "console-*.html"
	old, _ := filepath.Glob(filepath.Join(state, pattern)) // fails only for a bad pattern
	for _, f := range old {
		if st, err := os.Lstat(f); err == nil && time.Since(st.ModTime()) > console.LinkFor {
			_ = os.Remove(f) // its link is too old
		}
	}
	f, err := os.CreateTemp(state, pattern) // 0600
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(f, "<!doctype html><meta charset=utf-8><title>rootsfs</title><meta http-equiv=refresh content=\"0; url=%s\">\n", link)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}
