package function

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

const (
	// leastHidden is the length from which on a value is looked for: a shorter one
	// is in every other word.
	leastHidden = 4
	shown       = "(not shown)"
)

// hide makes a value one that is not shown.
func (v *Vault) hide(value string) {
	value = strings.TrimSpace(value)
	if len(value) < leastHidden {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hidden[value] = true
}

// Hide returns text without the secrets that were read: values of Secrets Manager,
// and parameters of the type SecureString. They have no business in a message, and
// yet people write them where a message quotes them, as a part of a pattern or of a
// path.
func (v *Vault) Hide(text string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	for value := range v.hidden {
		text = strings.ReplaceAll(text, value, shown)
	}
	return text
}

// Error returns err, or one that says the same without secrets and is err for
// errors.Is.
func (v *Vault) Error(err error) error {
	if err == nil {
		return nil
	}
	if text := v.Hide(err.Error()); text != err.Error() {
		return &hiddenError{text, err}
	}
	return err
}

type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }

// Format keeps %+v and %#v from the error inside.
func (e *hiddenError) Format(s fmt.State, _ rune) { _, _ = fmt.Fprint(s, e.text) }

func (e *hiddenError) Is(target error) bool { return errors.Is(e.err, target) }

func (e *hiddenError) As(target any) bool { return errors.As(e.err, target) }

// Logger returns a logger that writes what l does, without secrets.
func (v *Vault) Logger(l *slog.Logger) *slog.Logger { return slog.New(hidingHandler{l.Handler(), v}) }

type hidingHandler struct {
	next  slog.Handler
	vault *Vault
}

func (h hidingHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h hidingHandler) Handle(ctx context.Context, r slog.Record) error {
	hidden := slog.NewRecord(r.Time, r.Level, h.vault.Hide(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		hidden.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, hidden)
}

func (h hidingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	hidden := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		hidden[i] = h.attr(a)
	}
	return hidingHandler{h.next.WithAttrs(hidden), h.vault}
}

func (h hidingHandler) WithGroup(name string) slog.Handler {
	return hidingHandler{h.next.WithGroup(name), h.vault}
}

func (h hidingHandler) attr(a slog.Attr) slog.Attr {
	switch value := a.Value.Resolve(); value.Kind() {
	case slog.KindString:
		return slog.String(a.Key, h.vault.Hide(value.String()))
	case slog.KindGroup:
		var inner []slog.Attr
		for _, b := range value.Group() {
			inner = append(inner, h.attr(b))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(inner...)}
	case slog.KindAny:
		if text := fmt.Sprint(value.Any()); h.vault.Hide(text) != text {
			return slog.String(a.Key, h.vault.Hide(text))
		}
	}
	return a
}
