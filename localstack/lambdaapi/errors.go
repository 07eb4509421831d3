package lambdaapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Error is an answer that is an exception of Lambda's API.
type Error struct {
	// Status is the HTTP status, Code the exception's name.
	Status        int
	Code, Message string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func (e *Error) write(w http.ResponseWriter) {
	w.Header().Set("X-Amzn-Errortype", e.Code)
	kind := "User"
	if e.Status >= 500 {
		kind = "Service"
	}
	// Some exceptions spell the member so, some so.
	writeJSON(w, e.Status, map[string]string{"Type": kind, "message": e.Message, "Message": e.Message})
}

// fail answers with an Error, and closes the connection on any other error.
func fail(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	e.write(w)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // all bodies are of our own types
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that is gone needs no answer
}

func invalid(format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Code: "InvalidParameterValueException", Message: fmt.Sprintf(format, args...)}
}

func notFound() error {
	return &Error{Status: http.StatusNotFound, Code: "ResourceNotFoundException", Message: "The resource you requested does not exist."}
}

func inUse(verb string) error {
	return &Error{Status: http.StatusBadRequest, Code: "ResourceInUseException", Message: "Cannot " + verb + " the event source mapping because it is in use."}
}

func conflict(format string, args ...any) error {
	return &Error{Status: http.StatusConflict, Code: "ResourceConflictException", Message: fmt.Sprintf(format, args...)}
}
