// Package cache keeps what the local stack downloads once and uses again: a
// folder per thing and version, filled by one process at a time.
//
//	dir, err := cache.Fill(ctx, "", "kafka-4.3.1", func(dir string) error { … })
//
// It never deletes a finished folder; "make clean-cache" does.
package cache

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// complete marks a folder that was filled to the end.
const complete = ".complete"

// Root is where downloads go by default: .cache in the repository that holds
// the working directory, else a folder for mirrorless in the user's cache.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module mirrorless\n") {
			return filepath.Join(dir, ".cache"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	return filepath.Join(user, "mirrorless"), nil
}

// Fill returns the folder name below root (below [Root] where root is empty)
// and calls fill for it unless an earlier call has succeeded. Whoever comes
// while another process fills waits for it; an unfinished folder is emptied and
// filled again. fill gets the folder's final, absolute path.
func Fill(ctx context.Context, root, name string, fill func(dir string) error) (string, error) {
	if root == "" {
		var err error
		if root, err = Root(); err != nil {
			return "", err
		}
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("fill cache %s: %w", name, err)
	}
	dir := filepath.Join(root, name)
	if filled(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("fill cache %s: %w", name, err)
	}
	unlock, err := lockedfile.MutexAt(dir + ".lock").Lock()
	if err != nil {
		return "", fmt.Errorf("lock cache %s: %w", name, err)
	}
	defer unlock()
	if filled(dir) {
		return dir, nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("empty cache %s: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("fill cache %s: %w", name, err)
	}
	if err := fill(dir); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, complete), nil, 0o644); err != nil {
		return "", fmt.Errorf("fill cache %s: %w", name, err)
	}
	return dir, nil
}

func filled(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, complete))
	return err == nil
}
