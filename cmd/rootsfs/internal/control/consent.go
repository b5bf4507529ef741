package control

import (
	"cmp"
	"errors"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Question is what a server or a command asks consent for, as data and as text with every
// foreign character made visible.
type Question struct {
	OfSession
	broker.Question
	Heading names.Text   `json:"heading"` // who asks, and why
	Lines   []names.Text `json:"lines"`   // one for each item
}

// QuestionsAnswer lists the questions that wait, the oldest first.
type QuestionsAnswer struct {
	Questions []Question `json:"questions"`
}

// AnswerRequest decides a question: the one with the id, or the only one whose
// id begins so. All denies every question that waits.
type AnswerRequest struct {
	ID      string `json:"id,omitempty"`
	All     bool   `json:"all,omitempty"`
	Approve bool   `json:"approve,omitempty"`
	// Only are the items to be allowed, counted from 1; none stands for all.
	Only []int `json:"only,omitempty"`
	// Path and Mode are narrower than asked. ForMS is how long, in
	// milliseconds; 0: as long as the session. IdleMS is for how long nothing
	// may use the root before it ends, likewise; 0: that does not end it.
	Path   string `json:"path,omitempty"`
	Mode   string `json:"mode,omitempty"`
	ForMS  int64  `json:"for_ms,omitempty"`
	IdleMS int64  `json:"idle_ms,omitempty"`
	// Remember denies what the same server asks for there, and below, without a
	// question, while the session lives (see Denial). It goes with the denial of
	// one question. The denial of a host is remembered without it.
	Remember bool `json:"remember,omitempty"`
	// Save also writes an approved host to the configuration, for later runs of the same name.
	Save bool `json:"save,omitempty"`
}

// Answered tells what was decided of a question; paths and hosts are escaped.
type Answered struct {
	ID      string       `json:"id"`
	Allowed []names.Text `json:"allowed"`
	Denied  []names.Text `json:"denied"`
}

// AnswerAnswer tells of each question that was answered.
type AnswerAnswer struct {
	Answered []Answered `json:"answered"`
	Saved    string     `json:"saved,omitempty"` // configuration file that a host was written to
}

// PreviewRequest asks what lies at an item of a question.
type PreviewRequest struct {
	ID   string `json:"id"`
	Item int    `json:"item"` // counted from 1
}

// Preview is what lies there now, as the server would see it. Names that the
// policy would hide or deny are counted once each, whatever lies below them, and
// not among the rest.
type Preview struct {
	Files int64 `json:"files"`
	Dirs  int64 `json:"dirs"`
	Bytes int64 `json:"bytes"`
	// Withheld is how many names the policy would hide or deny; Examples are some
	// of them, below the item, with everything invisible escaped.
	Withheld int64    `json:"withheld"`
	Examples []string `json:"examples"`
	// Complete is false if there is more than could be looked at in time.
	Complete bool    `json:"complete"`
	TookMS   float64 `json:"took_ms"`
}

// Denial is what the owner denied a server, or the command, for as long as the session lives:
// the path, and all that lies below, or the host. The owner is not asked about it again.
type Denial struct {
	OfSession
	ID      string        `json:"id"`             // id, for `consent forget`
	Since   time.Time     `json:"since"`          // when it was denied
	Subject names.Foreign `json:"subject"`        // server that is denied
	Path    names.Foreign `json:"path"`           // path that is denied, with everything below; "" for a host
	Host    names.Foreign `json:"host,omitempty"` // HOST:PORT that is denied
}

// What returns the path or the host.
func (d *Denial) What() string { return cmp.Or(d.Host, d.Path).Raw() }

// DenialsAnswer lists what is remembered, the oldest first.
type DenialsAnswer struct {
	Denials []Denial `json:"denials"`
}

// ForgetRequest lifts a denial: the one with the id, or the only one whose id
// begins so. All lifts every one. It grants nothing: the server may ask again.
type ForgetRequest struct {
	ID  string `json:"id,omitempty"`
	All bool   `json:"all,omitempty"`
}

// ForgetAnswer tells what was lifted.
type ForgetAnswer struct {
	Forgotten []Denial `json:"forgotten"`
}

// ErrNoDenial means that no denial is remembered under an id.
var ErrNoDenial = errors.New("no remembered denial has the id")
