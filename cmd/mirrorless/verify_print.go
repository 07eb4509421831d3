package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/verify"
)

// printVerified prints a line a topic, the first differences under it, and a
// sentence for each flow.
func printVerified(w io.Writer, flows []verified, skipped []string, most int) error {
	out := bufio.NewWriter(w)
	for _, v := range flows {
		for _, t := range v.Topics {
			printVerifiedTopic(out, v.settings, t, most)
		}
		for _, topic := range v.NotCompared {
			fmt.Fprintf(out, "%s: not compared, for it never rests; --topics %s compares it\n", topic, topic)
		}
		if v.Counts.Missing > 0 {
			fmt.Fprintf(out, "%s: mirrorless status lists the offsets that are known not to be copied (holes)\n", v.Flow)
		}
		fmt.Fprintf(out, "%s: %s\n", v.Flow, v.Sentence)
	}
	for _, f := range skipped {
		fmt.Fprintf(out, "%s: skipped, for it copies no topic that is to be compared.\n", f)
	}
	return out.Flush()
}

func printVerifiedTopic(w io.Writer, f config.Flow, t verify.Topic, most int) {
	fmt.Fprintf(w, "%s -> %s: %s\n", t.Source, t.Target, topicSummary(t))
	for _, p := range t.Partitions {
		if p.Error != "" {
			fmt.Fprintf(w, "  %s: %s\n", flow.TopicPartition{Topic: t.Source, Partition: p.Partition}, p.Error)
		}
	}
	shown := t.Findings[:min(most, len(t.Findings))]
	for _, finding := range shown {
		fmt.Fprintf(w, "  %s %s: %s\n", flow.TopicPartition{Topic: t.Source, Partition: finding.Partition}, finding.Kind, findingText(f, finding))
	}
	if more := int64(len(t.Findings)-len(shown)) + t.Omitted; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	for _, p := range t.Partitions {
		if len(p.Sampled) > 0 {
			fmt.Fprintf(w, "  %s sampled: %s offsets %s\n", flow.TopicPartition{Topic: t.Source, Partition: p.Partition}, f.Source, sampledText(p))
		}
	}
	for _, note := range t.Notes {
		fmt.Fprintf(w, "  %s\n", note)
	}
}

func topicSummary(t verify.Topic) string {
	if t.Error != "" {
		return t.Error
	}
	what := "record"
	if t.Compared == verify.ByKey {
		what = "key"
	}
	records := counted64(t.Counts.Source, what)
	var known int64
	for _, p := range t.Partitions {
		known += p.Known
	}
	if known > 0 {
		records += fmt.Sprintf(" (%d of them by the earlier report)", known)
	}
	records += " in " + counted(len(t.Partitions), "partition")
	differences := t.Counts.String()
	switch {
	case t.Verdict == verify.VerdictEqual && differences == "":
		return "equal, " + records
	case t.Verdict == verify.VerdictSampled && differences == "":
		return "equal in the sample, " + records
	case t.Verdict == verify.VerdictSampled:
		return fmt.Sprintf("equal in the sample but for what is allowed (%s), %s", differences, records)
	case t.Verdict == verify.VerdictEqual:
		return fmt.Sprintf("equal but for what is allowed (%s), %s", differences, records)
	case differences == "":
		return "not equal, see below"
	}
	return fmt.Sprintf("%s; %d of %s are equal", differences, t.Counts.Equal, records)
}

// sampledText lists the ranges of a sample.
func sampledText(p verify.Partition) string {
	texts := make([]string, len(p.Sampled))
	for i, s := range p.Sampled {
		texts[i] = s.Source.String()
	}
	return fmt.Sprintf("%s, of %d to %d", strings.Join(texts, ", "), p.SourceStart, p.SourceEnd-1)
}

func counted64(n int64, what string) string { return counted(int(n), what) }

// verifySentence answers the question of the command.
func verifySentence(v verified) string {
	f := v.settings
	counts := v.Counts.String()
	partitions, unread := 0, 0
	var records, keys int64
	for _, t := range v.Topics {
		partitions += len(t.Partitions)
		if t.Compared == verify.ByKey {
			keys += t.Counts.Source
		} else {
			records += t.Counts.Source
		}
		if t.Error != "" {
			unread++
		}
		for _, p := range t.Partitions {
			if p.Error != "" && t.Error == "" {
				unread++
				break
			}
		}
	}
	if unread > 0 && counts != "" {
		counts += "; and " + counted(unread, "topic") + " not read in full"
	}
	all := fmt.Sprintf("%s, %s", counted(len(v.Topics), "topic"), counted(partitions, "partition"))
	if records > 0 || keys == 0 {
		all += ", " + counted64(records, "record")
	}
	if keys > 0 {
		all += ", " + counted64(keys, "key")
	}
	switch {
	case v.Verdict == verify.VerdictEqual && counts == "":
		return fmt.Sprintf("%s is equal to %s: %s.", f.Target, f.Source, all)
	case v.Verdict == verify.VerdictEqual:
		return fmt.Sprintf("%s is equal to %s but for what is allowed (%s): %s.", f.Target, f.Source, counts, all)
	case v.Verdict == verify.VerdictSampled && counts == "":
		return fmt.Sprintf("%s is equal to %s in the sample: %s, which --seed %d chooses again.", f.Target, f.Source, all, v.Sample.Seed)
	case v.Verdict == verify.VerdictSampled:
		return fmt.Sprintf("%s is equal to %s in the sample but for what is allowed (%s): %s, which --seed %d chooses again.", f.Target, f.Source, counts, all, v.Sample.Seed)
	case v.Verdict == verify.VerdictUnprovable:
		return fmt.Sprintf("%s is equal to %s as far as both go back, but not all can be proved: %s.", f.Target, f.Source, counts)
	case v.Verdict == verify.VerdictBehind:
		return fmt.Sprintf("%s is equal to %s so far, but not complete: %s.", f.Target, f.Source, counts)
	case v.Verdict == verify.VerdictFailed && counts == "":
		return fmt.Sprintf("%s was not compared with %s to the end.", f.Target, f.Source)
	case v.Verdict == verify.VerdictFailed:
		return fmt.Sprintf("%s was not compared with %s to the end, and differs: %s.", f.Target, f.Source, counts)
	case counts == "":
		return fmt.Sprintf("%s is not equal to %s: %s not read in full.", f.Target, f.Source, counted(unread, "topic"))
	}
	return fmt.Sprintf("%s is not equal to %s: %s.", f.Target, f.Source, counts)
}

// findingText says where the records are and where they should be.
func findingText(f config.Flow, d verify.Finding) string {
	var source, target string
	if d.Source != nil {
		source = offsetsText(f.Source, *d.Source, d.Records)
	}
	if d.Target != nil {
		target = offsetsText(f.Target, *d.Target, d.Records)
	}
	is := "is"
	if d.Records > 1 {
		is = "are"
	}
	before := ""
	if d.Before != nil {
		before = fmt.Sprintf(", before offset %d", *d.Before)
	}
	switch d.Kind {
	case verify.Missing:
		return fmt.Sprintf("%s %s not on %s%s", source, is, f.Target, before)
	case verify.Duplicated:
		return fmt.Sprintf("%s %s on %s once more, at %s", source, is, f.Target, target)
	case verify.Reordered:
		return fmt.Sprintf("%s %s out of order on %s, at %s", source, is, f.Target, target)
	case verify.Extra:
		return fmt.Sprintf("%s %s not on %s%s", target, is, f.Source, before)
	case verify.Behind:
		return fmt.Sprintf("%s %s not on %s yet, which ends at offset %d", source, is, f.Target, *d.Before)
	case verify.Unprovable:
		return fmt.Sprintf("%s: %s", source+target, d.Reason)
	}
	if len(d.Differences) == 0 {
		return fmt.Sprintf("%s is another record than %s", target, source)
	}
	text := fmt.Sprintf("%s, %s: %s", source, target, differencesText(f, d))
	if d.Records > 1 {
		text += ", in the first of them"
	}
	return text
}

// offsetsText is "A offset 7", or "A offsets 7 to 9 (3 records)".
func offsetsText(alias string, r verify.Range, records int64) string {
	if records == 1 {
		return fmt.Sprintf("%s offset %s", alias, r)
	}
	return fmt.Sprintf("%s offsets %s (%d records)", alias, r, records)
}

// differencesText shows sizes only.
func differencesText(f config.Flow, finding verify.Finding) string {
	size := func(n int64) string {
		if n < 0 {
			return "null"
		}
		return fmt.Sprintf("%d B", n)
	}
	var texts []string
	for _, d := range finding.Differences {
		switch {
		case finding.Kind == verify.HeaderLost:
			texts = append(texts, fmt.Sprintf("%d of %s, whose value is null", d.SourceHeaders-d.TargetHeaders, counted(int(d.SourceHeaders), "header")))
		case d.Field == "timestamp":
			texts = append(texts, fmt.Sprintf("timestamp %d, on %s %+d ms", d.Source, f.Target, d.Target-d.Source))
		case d.Field == "headers":
			texts = append(texts, fmt.Sprintf("headers %d of %d B, on %s %d of %d B", d.SourceHeaders, d.Source, f.Target, d.TargetHeaders, d.Target))
		default:
			texts = append(texts, fmt.Sprintf("%s %s, on %s %s", d.Field, size(d.Source), f.Target, size(d.Target)))
		}
	}
	return strings.Join(texts, "; ")
}
