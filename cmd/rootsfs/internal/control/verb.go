package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Verb is one command to a session: POST /v1/NAME with In as JSON, answered by Out. A
// session handles each verb below, and a command calls each: see TestVerbs.
type Verb[In, Out any] struct{ name string }

// None is the request of a verb that takes nothing.
type None struct{}

// The verbs. See the request's type for what a verb does.
var (
	// GetStatus asks for the session's state.
	GetStatus = Verb[None, Status]{"status"}
	// GetRefusal asks for the last refusal that a grant would have avoided. The records
	// up to now are in the audit log when it is answered.
	GetRefusal = Verb[None, RefusalAnswer]{"refusal"}

	AddRoots      = Verb[AddRequest, AddAnswer]{"roots.add"}
	SetMode       = Verb[SetRequest, SetAnswer]{"roots.set"}
	RenewRoot     = Verb[RenewRequest, SetAnswer]{"roots.renew"}
	SwitchProfile = Verb[ProfileRequest, ProfileAnswer]{"roots.profile"}
	// Revoke is answered when everything handed out is dead. With an error, the answer
	// tells of each root.
	Revoke = Verb[RevokeRequest, RevokeAnswer]{"revoke"}
	Resume = Verb[ResumeRequest, ResumeAnswer]{"resume"}
	// Unmount revokes everything and ends the session.
	Unmount = Verb[None, UnmountAnswer]{"unmount"}

	ListQuestions   = Verb[None, QuestionsAnswer]{"consent.list"}
	AnswerQuestion  = Verb[AnswerRequest, AnswerAnswer]{"consent.answer"}
	PreviewQuestion = Verb[PreviewRequest, Preview]{"consent.preview"}
	ListDenials     = Verb[None, DenialsAnswer]{"consent.denials"}
	ForgetDenial    = Verb[ForgetRequest, ForgetAnswer]{"consent.forget"}

	GetPolicy   = Verb[None, PolicyAnswer]{"policy.get"}
	CheckPolicy = Verb[CheckRequest, CheckAnswer]{"policy.check"}
	// Why is answered when the records up to now are in the audit log.
	Why = Verb[CheckRequest, WhyAnswer]{"why"}
	// SetPatterns is answered when the patterns hold for everything that the kernel had
	// kept, too.
	SetPatterns = Verb[PatternsRequest, RootPolicy]{"policy.set"}

	ListTrash    = Verb[TrashRequest, TrashAnswer]{"trash.list"}
	RestoreTrash = Verb[RestoreRequest, RestoreAnswer]{"trash.restore"}
	EmptyTrash   = Verb[EmptyRequest, vfs.Emptied]{"trash.empty"}

	ListNet = Verb[None, NetState]{"net.list"}
	AddNet  = Verb[NetRequest, NetAdded]{"net.add"}
	// RemoveNet is answered when no connection that only these hosts permitted carries a
	// byte any more.
	RemoveNet = Verb[NetRequest, NetRemoved]{"net.remove"}
)

// Call asks a client's session. What the session refuses is an *Error; the answer then
// tells what was done before that.
func (v Verb[In, Out]) Call(ctx context.Context, c *Client, in In) (out Out, err error) {
	err = c.call(ctx, v.name, in, &out)
	return out, err
}

// Handler serves one verb.
type Handler struct {
	name  string
	serve http.HandlerFunc
}

// Handle binds the verb to the function that serves it. A request that holds an unknown
// field, or anything after its end, does not reach the function.
func (v Verb[In, Out]) Handle(f func(context.Context, In) (Out, error)) Handler {
	return Handler{v.name, func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := readRequest(w, r, maxBody, &in); err != nil && !errors.Is(err, io.EOF) {
			fail(w, http.StatusBadRequest, notUnderstood(err))
			return
		}
		out, err := f(r.Context(), in)
		if err != nil {
			p := problemOf(err)
			p.Answer, _ = json.Marshal(out) // without it, nothing is told of what was done
			fail(w, http.StatusUnprocessableEntity, p)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // a peer that went away wants no answer
	}}
}

// readRequest reads a request's body of at most limit bytes, strictly. Sending it has a
// limit of time of its own; the answer may take longer.
func readRequest(w http.ResponseWriter, r *http.Request, limit int64, in any) error {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	dec.DisallowUnknownFields()
	if err := dec.Decode(in); err != nil {
		return err
	}
	if err := dec.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return errors.New("something follows the request")
	}
	return nil
}

// problem is the body of an answer that is an error.
type problem struct {
	Error  string          `json:"error"`
	Class  Class           `json:"class"`
	Kind   string          `json:"kind"`
	Answer json.RawMessage `json:"answer,omitempty"` // what was done before
}

func notUnderstood(err error) problem {
	return problem{Error: "request not understood: " + err.Error(), Class: Usage, Kind: names.Invalid.String()}
}

func problemOf(err error) problem {
	return problem{Error: Text(err), Class: Classify(err), Kind: names.Reason(err).String()}
}

func fail(w http.ResponseWriter, status int, p problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p)
}
