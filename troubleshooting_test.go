package mirrorless_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// verb is a verb of fmt.
var verb = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]`)

// said are the texts that the product may print, from its string literals, with …
// in the place of what fmt fills in.
func said(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "shared/*.go", "cmd/*.go", "functions/*.go", "localstack/stack/*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					texts = append(texts, verb.ReplaceAllString(text, "…"))
				}
			}
			return true
		})
	}
	return texts
}

func TestTroubleshootingQuotesWhatIsSaid(t *testing.T) {
	page, err := os.ReadFile("docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	everything := strings.Join(said(t), "\n")
	quoted := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1)
	if len(quoted) < 40 {
		t.Fatalf("got %d texts in docs/troubleshooting.md, want those of its tables", len(quoted))
	}
	for _, q := range quoted {
		if text := q[1]; !strings.Contains(everything, text) {
			t.Errorf("docs/troubleshooting.md quotes %q, which nothing says", text)
		}
	}
}
