package control

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"golang.org/x/sys/unix"
)

// An owner of the machine's fleet can send requests to a session from afar. The fleet's agent
// forwards them. The machine's user decides which kinds of requests the agent forwards.

// Access is the kind of a request from afar.
type Access string

// The kinds of requests. The agent of a user always allows AccessLook and AccessStop.
const (
	AccessNone   Access = ""       // never from afar
	AccessLook   Access = "look"   // names and states, and never the contents of files
	AccessStop   Access = "stop"   // takes something back, and gives nothing
	AccessAnswer Access = "answer" // answers the question of a program
	AccessGrant  Access = "grant"  // gives what no program has asked for
)

// versionPath is the prefix of the paths of verbs. The other paths are of requests that are no
// verbs. The answer at WatchPath goes on until the client disconnects or the session ends.
const (
	versionPath = "/v1/"
	WatchPath   = versionPath + "watch"
	metricsPath = "/metrics"
)

// accesses has the kinds of the verbs. A verb that is not here cannot be used from afar. Verbs
// that show the contents of files, or change files, are not here.
var accesses = map[string]Access{
	GetStatus.name: AccessLook, GetRefusal.name: AccessLook, GetPolicy.name: AccessLook, CheckPolicy.name: AccessLook, Why.name: AccessLook,
	ListQuestions.name: AccessLook, PreviewQuestion.name: AccessLook, ListDenials.name: AccessLook, ListNet.name: AccessLook, ListTrash.name: AccessLook,
	Revoke.name: AccessStop, Pause.name: AccessStop, Unmount.name: AccessStop, RemoveNet.name: AccessStop,
	AnswerQuestion.name: AccessAnswer, ForgetDenial.name: AccessAnswer,
	AddRoots.name: AccessGrant, SetMode.name: AccessGrant, RenewRoot.name: AccessGrant, SwitchProfile.name: AccessGrant, AddNet.name: AccessGrant, Resume.name: AccessGrant,
}

// AccessOf returns the kind of a request, by its path and its body, and the body to forward.
func AccessOf(path string, body []byte) (Access, []byte, error) {
	switch path {
	case WatchPath, metricsPath:
		return AccessLook, body, nil
	case versionPath + AnswerQuestion.name:
		return accessOfAnswer(body)
	}
	name, ok := bytes.CutPrefix([]byte(path), []byte(versionPath))
	if !ok {
		return AccessNone, nil, nil
	}
	return accesses[string(name)], body, nil
}

// accessOfAnswer is AccessOf for the answer to a question. An answer with Save has the kind
// AccessGrant. A denial without Save has the kind AccessStop, because it gives nothing. The
// returned body is encoded from the decoded request, so that the session reads exactly the request
// that was judged.
func accessOfAnswer(body []byte) (Access, []byte, error) {
	var in AnswerRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return AccessNone, nil, &Error{Text: notUnderstood(err).Error, Class: Usage}
	}
	access := AccessAnswer
	switch {
	case in.Save:
		access = AccessGrant
	case !in.Approve:
		access = AccessStop
	}
	body, err := json.Marshal(in)
	return access, body, err
}

// Forward sends a request as it came from afar, and returns the answer, whose body the caller
// closes.
func (c *Client) Forward(ctx context.Context, path string, body []byte) (*http.Response, error) {
	method := http.MethodPost
	if path == metricsPath {
		method, body = http.MethodGet, nil
	}
	if (path == versionPath+Revoke.name || path == versionPath+Unmount.name) && isStopped(c.info.PID) {
		_ = c.signal(unix.SIGCONT) // if it fails, the session does not answer
	}
	return c.send(ctx, method, path, body, 0)
}

// Relay answers on the directory's socket by a handler, until Close. It is for a session that
// another machine serves.
func (d *Dir) Relay(log *slog.Logger, handler http.Handler) (*Server, error) {
	return d.serve(log, &Server{log: log}, handler)
}

// RefusalBody returns the body of an answer with the status RefusalStatus.
func RefusalBody(err error) []byte {
	data, _ := json.Marshal(problemOf(err)) // no error: the problem has only texts
	return data
}

// RefusalStatus is the status of an answer that refuses a request.
const RefusalStatus = http.StatusUnprocessableEntity
