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

// Verb is one command to a session: POST /v1/NAME with In as JSON, and Out as the answer. A
// session handles each verb below, and a command calls it: see TestVerbs.
type Verb[In, Out any] struct{ name string }

// None is the request of a verb that takes nothing.
type None struct{}

// The verbs. See the request's type for what a verb does.
var (
	// GetStatus asks for the session's state.
	GetStatus = Verb[None, Status]{"status"}
	// GetRefusal asks for the last refusal that a grant would have avoided. Before the answer,
	// all records so far are written to the audit log.
	GetRefusal = Verb[None, RefusalAnswer]{"refusal"}

	AddRoots      = Verb[AddRequest, AddAnswer]{"roots.add"}
	SetMode       = Verb[SetRequest, SetAnswer]{"roots.set"}
	RenewRoot     = Verb[RenewRequest, SetAnswer]{"roots.renew"}
	SwitchProfile = Verb[ProfileRequest, ProfileAnswer]{"roots.profile"}
	// Revoke returns when all access has ended. With an error, the answer has the result for
	// each root.
	Revoke = Verb[RevokeRequest, RevokeAnswer]{"revoke"}
	// Pause returns when programs can use nothing of the roots any more, not even the files that
	// they have opened or the data that the kernel has cached.
	// Even after an error, new accesses are refused.
	Pause  = Verb[PauseRequest, PauseAnswer]{"pause"}
	Resume = Verb[ResumeRequest, ResumeAnswer]{"resume"}
	// ReadLeaseNow makes the session read the lease of the machine. If the lease has run out,
	// ReadLeaseNow returns when the session is paused. If there is a new lease, it returns when
	// the pause for want of a lease has ended.
	ReadLeaseNow = Verb[None, LeaseAnswer]{"lease.read"}
	// ReadCeilingNow makes the session read the ceiling of the machine. ReadCeilingNow returns
	// when the session has revoked what the ceiling forbids.
	ReadCeilingNow = Verb[None, CeilingAnswer]{"ceiling.read"}
	// Unmount revokes everything and ends the session.
	Unmount = Verb[None, UnmountAnswer]{"unmount"}

	ListQuestions   = Verb[None, QuestionsAnswer]{"consent.list"}
	AnswerQuestion  = Verb[AnswerRequest, AnswerAnswer]{"consent.answer"}
	PreviewQuestion = Verb[PreviewRequest, Preview]{"consent.preview"}
	ListDenials     = Verb[None, DenialsAnswer]{"consent.denials"}
	ForgetDenial    = Verb[ForgetRequest, ForgetAnswer]{"consent.forget"}

	GetPolicy   = Verb[None, PolicyAnswer]{"policy.get"}
	CheckPolicy = Verb[CheckRequest, CheckAnswer]{"policy.check"}
	// Why writes all records so far to the audit log before it answers.
	Why = Verb[CheckRequest, WhyAnswer]{"why"}
	// SetPatterns returns when the patterns also apply to everything that the kernel had
	// cached.
	SetPatterns = Verb[PatternsRequest, RootPolicy]{"policy.set"}

	ListTrash    = Verb[TrashRequest, TrashAnswer]{"trash.list"}
	RestoreTrash = Verb[RestoreRequest, RestoreAnswer]{"trash.restore"}
	EmptyTrash   = Verb[EmptyRequest, vfs.Emptied]{"trash.empty"}

	ListStage     = Verb[StageRequest, StageAnswer]{"stage.list"}
	StageContents = Verb[StageContentsRequest, StageContentsAnswer]{"stage.contents"}
	// ApplyStage and DiscardStage are answered with the work that was done, even if they fail.
	ApplyStage   = Verb[StageApplyRequest, StageAnswer]{"stage.apply"}
	DiscardStage = Verb[StageRequest, StageAnswer]{"stage.discard"}

	ListCheckpoints = Verb[StageRequest, CheckpointsAnswer]{"stage.checkpoints"}
	MakeCheckpoint  = Verb[CheckpointRequest, CheckpointAnswer]{"stage.checkpoint"}
	UndoStage       = Verb[UndoRequest, UndoAnswer]{"stage.undo"}

	ListNet = Verb[None, NetState]{"net.list"}
	AddNet  = Verb[NetRequest, NetAdded]{"net.add"}
	// RemoveNet returns when every connection that only the removed hosts and secrets permitted
	// has stopped carrying data.
	RemoveNet = Verb[NetRequest, NetRemoved]{"net.remove"}
)

// Call sends the request to a client's session. If the session refuses, the error is an *Error,
// and the answer has the part of the work that was done before.
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
			p.Answer, _ = json.Marshal(out) // if it fails, the client does not learn what was done
			fail(w, http.StatusUnprocessableEntity, p)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // an error means that the client has gone
	}}
}

// readRequest reads a request's body of at most limit bytes, strictly. The client has a limited
// time to send the body; the answer may take longer.
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

// problem is the body of an error answer.
type problem struct {
	Error  string          `json:"error"`
	Class  Class           `json:"class"`
	Kind   string          `json:"kind"`
	Answer json.RawMessage `json:"answer,omitempty"` // the part of the work that was done before the error
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
