package mirrorless_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func TestLessonsNameTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("docs/lessons.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "git", "grep", "-hoE", `^func Test\w+`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(string(out), "func "+name[1]+"\n") {
			t.Errorf("docs/lessons.md names %s, which is no test", name[1])
		}
	}
}
