package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mirrorless/shared/kafkaevent"
)

func decodeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "decode EVENT.json",
		Short: "Show the records of a Lambda Kafka event, as mirror reads them",
		Long: `Show the records of an event of Lambda's Kafka event source, in the order of the
file, as mirror reads them; - reads standard input.

Keys, values and header values are shown by their sizes; --json prints them in
hex. What mirror would refuse is an error, which says what the file looks like.`,
		Args: needsFile("an event in JSON, or - for stdin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			event, err := readEvent(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			if asJSON {
				err = printEventJSON(out, event)
			} else {
				err = printEventTable(out, event)
			}
			return errors.Join(err, out.Flush())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per record, with key, value and headers in hex")
	return cmd
}

func readEvent(path string, stdin io.Reader) (kafkaevent.Event, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return kafkaevent.Event{}, fmt.Errorf("read event: %w", err)
	}
	event, err := kafkaevent.Decode(bytes.Clone(text))
	if e, ok := errors.AsType[*kafkaevent.Error](err); ok {
		line, column := position(text, e.Byte)
		return event, fmt.Errorf("%s:%d:%d: %w", path, line, column, err)
	}
	return event, err
}

// position is the line and column, both from 1, of a byte of text.
func position(text []byte, at int) (line, column int) {
	before := text[:min(at, len(text))]
	return 1 + bytes.Count(before, []byte{'\n'}), len(before) - bytes.LastIndexByte(before, '\n')
}

// jsonRecord is a line of decode --json. Null is Kafka's null; a header that
// arrived without its name has neither.
type jsonRecord struct {
	Topic         string       `json:"topic"`
	Partition     int32        `json:"partition"`
	Offset        int64        `json:"offset"`
	Timestamp     int64        `json:"timestamp"`
	TimestampType *string      `json:"timestampType"`
	Key           *string      `json:"key"`
	Value         *string      `json:"value"`
	Headers       []jsonHeader `json:"headers"`
}

type jsonHeader struct {
	Name  *string `json:"name"`
	Value *string `json:"value"`
}

func printEventJSON(w io.Writer, event kafkaevent.Event) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for i := range event.Records {
		r := &event.Records[i]
		line := jsonRecord{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
			Key: hexOrNull(r.Key), Value: hexOrNull(r.Value), Headers: make([]jsonHeader, 0, len(r.Headers)),
		}
		if r.TimestampType != "" {
			line.TimestampType = new(string(r.TimestampType))
		}
		for _, h := range r.Headers {
			header := jsonHeader{Value: hexOrNull(h.Value)}
			if !h.Lost {
				header.Name = new(h.Name)
			}
			line.Headers = append(line.Headers, header)
		}
		if err := encoder.Encode(line); err != nil {
			return fmt.Errorf("print record: %w", err)
		}
	}
	return nil
}

func hexOrNull(b []byte) *string {
	if b == nil {
		return nil
	}
	return new(hex.EncodeToString(b))
}

func printEventTable(w io.Writer, event kafkaevent.Event) error {
	type partition struct {
		topic string
		n     int32
	}
	last := make(map[partition]int64)
	unordered := make(map[partition]bool)
	var notes []string
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(event.Records) > 0 {
		fmt.Fprintln(table, "TOPIC\tPARTITION\tOFFSET\tTIMESTAMP\tTYPE\tKEY\tVALUE\tHEADERS")
	}
	for i := range event.Records {
		r := &event.Records[i]
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Topic, r.Partition, r.Offset,
			timestampText(r.Timestamp), cmp.Or(r.TimestampType, "-"), sizeText(r.Key), sizeText(r.Value), headersText(r.Headers))
		p := partition{r.Topic, r.Partition}
		before, seen := last[p]
		if seen && r.Offset <= before && !unordered[p] {
			unordered[p] = true
			notes = append(notes, fmt.Sprintf("%s-%d: offset %d comes after %d: mirror copies nothing of this partition", p.topic, p.n, r.Offset, before))
		}
		last[p] = r.Offset
		if n := lostHeaders(r.Headers); n > 0 {
			notes = append(notes, fmt.Sprintf("%s-%d: offset %d: headers with a null value arrived without their names: %d", p.topic, p.n, r.Offset, n))
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print records: %w", err)
	}
	for _, note := range notes {
		fmt.Fprintln(w, note)
	}
	_, err := fmt.Fprintf(w, "%s: %s of %s\n", event.Source,
		count(len(event.Records), "record"), count(len(last), "partition"))
	return err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func timestampText(ms int64) string {
	if ms == kafkaevent.NoTimestamp {
		return "none"
	}
	// Years that time's layout cannot show are given as they came.
	if t := time.UnixMilli(ms).UTC(); t.Year() >= 0 && t.Year() < 10_000 {
		return t.Format("2006-01-02T15:04:05.000Z")
	}
	return fmt.Sprintf("%d ms", ms)
}

func sizeText(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%d B", len(b))
}

// headersText lists names and sizes of values.
func headersText(headers []kafkaevent.Header) string {
	if len(headers) == 0 {
		return "-"
	}
	texts := make([]string, 0, len(headers))
	for _, h := range headers {
		if h.Lost {
			texts = append(texts, "(lost)")
		} else {
			texts = append(texts, fmt.Sprintf("%q %s", h.Name, sizeText(h.Value)))
		}
	}
	return strings.Join(texts, ", ")
}

func lostHeaders(headers []kafkaevent.Header) (n int) {
	for _, h := range headers {
		if h.Lost {
			n++
		}
	}
	return n
}
