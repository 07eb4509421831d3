package mirrorless_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// What the pages promise is held by the tests that they name.
func TestPagesNameTestsThatExist(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "grep", "-hoE", `^func Test\w+`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"ARCHITECTURE.md", "docs/lessons.md", "docs/migrating.md"} {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
		if len(names) == 0 {
			t.Errorf("%s names no test", file)
		}
		for _, name := range names {
			if !strings.Contains(string(out), "func "+name[1]+"\n") {
				t.Errorf("%s names %s, which is no test", file, name[1])
			}
		}
	}
}
