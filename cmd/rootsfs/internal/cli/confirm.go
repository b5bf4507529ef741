package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Confirm shows what is to be done and asks, on the terminal itself: standard input
// and output may be anything. What was typed before the question answers nothing.
func Confirm(what, question string) error {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return &ExitError{Code: ExitNotApproved, Err: errors.New("not approved: there is no terminal to ask on; use --yes if this is meant")}
	}
	defer tty.Close()
	broker.FlushInput(tty)
	width := Columns(tty)
	for line := range strings.Lines(what) {
		fmt.Fprintln(tty, names.Fold(strings.TrimSuffix(line, "\n"), "", width))
	}
	fmt.Fprint(tty, foldQuoted(question, width)+" [y/N] ")
	line, err := bufio.NewReader(tty).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return &ExitError{Code: ExitNotApproved, Err: fmt.Errorf("not approved (answer: %s)", names.Quote(strings.TrimSpace(line)))}
}
