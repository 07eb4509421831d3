package infra_test

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"mirrorless/localstack/samtest"
)

// mostZip is how many bytes a function's package may have.
const mostZip = 9_000_000

// TestSAMBuildsSmallStaticFunctions builds the packages as a deployment does, without
// network and account.
func TestSAMBuildsSmallStaticFunctions(t *testing.T) {
	bin := samtest.Find(t)
	dir := filepath.Join(t.TempDir(), "build")
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "sam"), "build", "--build-dir", dir)
	cmd.Dir, cmd.Env = "..", offline(bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("sam build: %v\n%s", err, out)
	}
	for _, function := range []string{"TopicsFunction", "MirrorFunction", "HeartbeatFunction", "CheckpointFunction"} {
		f, err := elf.Open(filepath.Join(dir, function, "bootstrap"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 || f.Section(".interp") != nil {
			t.Errorf("%s: got a bootstrap that needs %q (%v), want a static one", function, libraries, err)
		}
		if f.Machine != elf.EM_AARCH64 {
			t.Errorf("%s: got a bootstrap for %v, want arm64", function, f.Machine)
		}
		if size := zipped(t, filepath.Join(dir, function)); size > mostZip {
			t.Errorf("%s: got a package of %d bytes, want %d at most", function, size, mostZip)
		} else {
			t.Logf("%s: %d bytes", function, size)
		}
	}
}

// zipped is the size of a folder's files in a zip, as sam makes it.
func zipped(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, entry := range entries {
		in, err := os.Open(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		to, err := archive.Create(entry.Name())
		if err == nil {
			_, err = io.Copy(to, in)
		}
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Len()
}
