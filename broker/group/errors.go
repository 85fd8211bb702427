package group

import "github.com/twmb/franz-go/pkg/kerr"

// Error is a refusal in Kafka's words.
type Error struct {
	Code    int16
	Message string // for people; may be empty
}

func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return kerr.ErrorForCode(e.Code).Error()
}

// refusal makes an Error of one of Kafka's and a text for people.
func refusal(kind *kerr.Error, message ...string) *Error {
	e := &Error{Code: kind.Code}
	if len(message) > 0 {
		e.Message = message[0]
	}
	return e
}

// code is the error's code, 0 for none.
func (e *Error) code() int16 {
	if e == nil {
		return 0
	}
	return e.Code
}
