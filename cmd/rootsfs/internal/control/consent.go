package control

import (
	"cmp"
	"errors"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Question is a question with which a server or a command asks for consent. Heading and Lines
// have the question as text, in which foreign names are escaped.
type Question struct {
	OfSession
	broker.Question
	Heading names.Text   `json:"heading"` // who asks, and why
	Lines   []names.Text `json:"lines"`   // one for each item
}

// QuestionsAnswer lists the waiting questions, the oldest first.
type QuestionsAnswer struct {
	Questions []Question `json:"questions"`
}

// AnswerRequest decides a question: the one with the id, or the only one whose id begins with
// it. All denies every waiting question.
type AnswerRequest struct {
	ID      string `json:"id,omitempty"`
	All     bool   `json:"all,omitempty"`
	Approve bool   `json:"approve,omitempty"`
	// Only are the items to allow, counted from 1. An empty list stands for all items that can
	// be granted.
	Only []int `json:"only,omitempty"`
	// Path and Mode, if set, replace those of the question, and must not be wider. ForMS is how
	// long the grant lasts, in milliseconds; 0: as long as the session. IdleMS is how long the
	// root may be unused before it ends, in milliseconds; 0: any time.
	Path   string `json:"path,omitempty"`
	Mode   string `json:"mode,omitempty"`
	ForMS  int64  `json:"for_ms,omitempty"`
	IdleMS int64  `json:"idle_ms,omitempty"`
	// Remember makes the denial of one question last while the session lives (see Denial):
	// later requests of the same server for the path, or below it, are denied without a
	// question. The denial of a host is always remembered.
	Remember bool `json:"remember,omitempty"`
	// Save also writes an approved host to the configuration, for later runs of the same name.
	Save bool `json:"save,omitempty"`
}

// Answered is the decision about a question. Paths and hosts are escaped.
type Answered struct {
	ID      string       `json:"id"`
	Allowed []names.Text `json:"allowed"`
	Denied  []names.Text `json:"denied"`
}

// AnswerAnswer lists the answered questions.
type AnswerAnswer struct {
	Answered []Answered `json:"answered"`
	Saved    string     `json:"saved,omitempty"` // configuration file that a host was written to
}

// PreviewRequest asks for the contents of an item of a question.
type PreviewRequest struct {
	ID   string `json:"id"`
	Item int    `json:"item"` // counted from 1
}

// Preview counts the present contents of an item, as the server would see them. A name that the
// policy would hide or deny is counted separately, and only once with everything below it.
type Preview struct {
	Files int64 `json:"files"`
	Dirs  int64 `json:"dirs"`
	Bytes int64 `json:"bytes"`
	// Withheld is how many names the policy would hide or deny. Examples are some of them, as
	// escaped paths below the item.
	Withheld int64        `json:"withheld"`
	Examples []names.Text `json:"examples"`
	// Complete is false if something was not counted: it could not be read, there were too many
	// names, or the time was too short.
	Complete bool    `json:"complete"`
	TookMS   float64 `json:"took_ms"`
}

// Denial is a remembered denial: the owner has denied a server, or the command, a path with
// everything below it, or a host, for as long as the session lives. The owner is not asked
// about it again.
type Denial struct {
	OfSession
	ID      string        `json:"id"`             // id, for `consent forget`
	Since   time.Time     `json:"since"`          // when it was denied
	Subject names.Foreign `json:"subject"`        // server that is denied
	Path    names.Foreign `json:"path"`           // path that is denied, with everything below; "" for a host
	Host    names.Foreign `json:"host,omitempty"` // HOST:PORT that is denied
}

// What returns the path or the host.
func (d *Denial) What() names.Foreign { return cmp.Or(d.Host, d.Path) }

// DenialsAnswer lists the remembered denials, the oldest first.
type DenialsAnswer struct {
	Denials []Denial `json:"denials"`
}

// ForgetRequest lifts a denial: the one with the id, or the only one whose id begins with it.
// All lifts every denial. Lifting grants nothing: the server may ask again.
type ForgetRequest struct {
	ID  string `json:"id,omitempty"`
	All bool   `json:"all,omitempty"`
}

// ForgetAnswer lists the lifted denials.
type ForgetAnswer struct {
	Forgotten []Denial `json:"forgotten"`
}

// ErrNoDenial means that no denial is remembered under an id.
var ErrNoDenial = errors.New("no remembered denial has the id")
