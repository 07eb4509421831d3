package kafka

import (
	"context"
	"fmt"
	"os"

	"mirrorless/localstack/process"
)

// MirrorMaker is a running MirrorMaker 2 of the same release as the brokers.
type MirrorMaker struct {
	process *process.Process
	log     string
}

// MirrorMaker starts MirrorMaker 2 with propertiesFile as
// connect-mirror-maker.sh would, with that script's JVM settings, and writes
// its log to logFile. It returns at once: MirrorMaker 2 takes some seconds to
// begin, and goes on trying where a cluster is not there.
func (in Installation) MirrorMaker(propertiesFile, logFile string) (*MirrorMaker, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("start MirrorMaker 2: %w", err)
	}
	defer log.Close()
	cmd := in.run(scriptFlags("-Xms256M", "-Xmx2G"), "server", "org.apache.kafka.connect.mirror.MirrorMaker", propertiesFile)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &MirrorMaker{process: p, log: logFile}, nil
}

// PID is the process id.
func (m *MirrorMaker) PID() int { return m.process.PID() }

// LogFile is the path of the log, at level INFO.
func (m *MirrorMaker) LogFile() string { return m.log }

// Usage is what MirrorMaker 2 has used so far.
func (m *MirrorMaker) Usage() (process.Usage, error) { return m.process.Usage() }

// Done is closed when MirrorMaker 2 has ended, which it does by itself only
// where its properties are wrong.
func (m *MirrorMaker) Done() <-chan struct{} { return m.process.Done() }

// Freeze sends SIGSTOP, and Thaw SIGCONT.
func (m *MirrorMaker) Freeze() error { return m.process.Freeze() }

// Thaw undoes Freeze.
func (m *MirrorMaker) Thaw() error { return m.process.Thaw() }

// Stop lets MirrorMaker 2 commit what it has copied and end; when ctx ends
// first it is killed.
func (m *MirrorMaker) Stop(ctx context.Context) error { return m.process.Stop(ctx) }

// Close kills MirrorMaker 2. It may be called again.
func (m *MirrorMaker) Close() { m.process.Kill() }
