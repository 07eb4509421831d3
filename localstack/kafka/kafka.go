// Package kafka runs real Apache Kafka for tests and benchmarks: brokers
// (KRaft), Kafka's own tools, and MirrorMaker 2 as a peer. It needs a Java
// runtime and Maven, which brings Kafka's artifacts once; no Docker.
//
//	in, err := kafka.Find(ctx, "")
//	c, err := in.Start(ctx, kafka.Options{Brokers: 3})
//	defer c.Close()
//	out, err := in.Tool(ctx, "kafka-topics", "--bootstrap-server", c.Bootstrap(), "--list")
//
// Everything listens on 127.0.0.1 only and ends with the program that started
// it. The clusters have no authentication and no encryption unless
// Options.Properties says so, and are no place for data that is to be kept.
package kafka

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"mirrorless/localstack/cache"
)

// Version is the release of Apache Kafka that is run.
const Version = "4.3.1"

// missing is what a person without a usable Java or Maven has to know.
const missing = "real Kafka needs Java 17 or newer and Maven (Debian: apt-get install default-jre-headless maven)"

const (
	oldestJava       = 17
	dependencyPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
)

//go:embed pom.xml
var pom []byte

//go:embed log4j2-server.properties
var serverLogging []byte

//go:embed log4j2-tools.properties
var toolLogging []byte

// Installation is a Kafka that can be started any number of times.
type Installation struct {
	dir  string
	java string
}

// Find returns the Kafka below cacheDir (cache.Root where it is empty). The
// first time it brings the artifacts, 55 MB, and prepares them so that brokers
// start twice as fast. Its error says in one line what is missing.
func Find(ctx context.Context, cacheDir string) (Installation, error) {
	java, err := findJava(ctx)
	if err != nil {
		return Installation{}, err
	}
	dir, err := cache.Fill(ctx, cacheDir, "kafka-"+Version, func(dir string) error {
		if err := download(ctx, dir); err != nil {
			return err
		}
		in := Installation{dir: dir, java: java}
		if err := in.writeLogging(); err != nil {
			return err
		}
		return in.dumpArchive(ctx)
	})
	if err != nil {
		return Installation{}, err
	}
	in := Installation{dir: dir, java: java}
	if err := in.writeLogging(); err != nil {
		return Installation{}, err
	}
	return in, nil
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func findJava(ctx context.Context) (string, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("%s: %w", missing, err)
	}
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %s -version: %w", missing, java, err)
	}
	match := javaVersion.FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("%s: cannot read the version of %s in %q", missing, java, out)
	}
	if version, err := strconv.Atoi(string(match[1])); err != nil || version < oldestJava {
		return "", fmt.Errorf("%s: %s is version %s", missing, java, match[1])
	}
	return java, nil
}

func download(ctx context.Context, dir string) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%s: %w", missing, err)
	}
	pomFile := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pomFile, pom, 0o644); err != nil {
		return fmt.Errorf("download Kafka: %w", err)
	}
	cmd := exec.CommandContext(ctx, maven, "--batch-mode", "--quiet", "--file", pomFile,
		dependencyPlugin+":copy-dependencies", "-Dkafka.version="+Version,
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(dir, "libs"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("download Kafka %s with Maven: %w: %s", Version, err, firstLines(out, "ERROR"))
	}
	return nil
}

// writeLogging puts the logging files of this program's version in place.
func (in Installation) writeLogging() error {
	for path, want := range map[string][]byte{in.loggingFile("server"): serverLogging, in.loggingFile("tools"): toolLogging} {
		if got, err := os.ReadFile(path); err == nil && string(got) == string(want) {
			continue
		}
		// Renamed into place, since another program's broker may be reading it.
		temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
		if err := os.WriteFile(temporary, want, 0o644); err != nil {
			return fmt.Errorf("write logging settings: %w", err)
		}
		if err := os.Rename(temporary, path); err != nil {
			return fmt.Errorf("write logging settings: %w", err)
		}
	}
	return nil
}

func (in Installation) loggingFile(kind string) string {
	return filepath.Join(in.dir, "log4j2-"+kind+".properties")
}

func (in Installation) archiveFile() string { return filepath.Join(in.dir, "classes.jsa") }

// dumpArchive runs a broker once and keeps its loaded classes (class data
// sharing), which halves the time of later starts.
func (in Installation) dumpArchive(ctx context.Context) error {
	archive := in.archiveFile()
	c, err := in.start(ctx, Options{}, "-XX:ArchiveClassesAtExit="+archive+".new")
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Stop(ctx, c.Nodes()[0]); err != nil {
		return fmt.Errorf("prepare Kafka: %w", err)
	}
	err = os.Rename(archive+".new", archive)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a Java without class data sharing: starts stay slow
	}
	return err
}

// quickFlags make a JVM small and quick to start, at the price of speed later.
func (in Installation) quickFlags() []string {
	flags := []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	if _, err := os.Stat(in.archiveFile()); err == nil {
		// Another Java than the one that made the archive refuses it, goes on
		// without and warns on stdout, where a tool's answer is expected.
		flags = append(flags, "-XX:SharedArchiveFile="+in.archiveFile(), "-Xlog:disable")
	}
	return flags
}

// scriptFlags are those of the scripts in Kafka's release archive (class
// kafka-run-class.sh) with the heap that the calling script sets.
func scriptFlags(heap ...string) []string {
	return append(heap, "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true")
}

// run is the command for one of Kafka's main classes. Its end does not depend
// on any context.
func (in Installation) run(flags []string, logging, class string, args ...string) *exec.Cmd {
	all := append([]string{}, flags...)
	all = append(all, "-Dlog4j2.configurationFile="+in.loggingFile(logging), "-cp", filepath.Join(in.dir, "libs", "*"), class)
	return exec.Command(in.java, append(all, args...)...)
}

// firstLines is up to five lines of a program's output that hold one of the
// words, or its last five where none does.
func firstLines(out []byte, words ...string) string {
	const most = 5
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var found []string
	for _, line := range lines {
		for _, word := range words {
			if strings.Contains(line, word) && len(found) < most {
				found = append(found, line)
				break
			}
		}
	}
	if found == nil {
		found = lines[max(0, len(lines)-most):]
	}
	return strings.Join(found, "\n")
}
