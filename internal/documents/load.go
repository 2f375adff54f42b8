package documents

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/shorttext"
)

const (
	// mostDocument bounds the memory for a document, whose nodes take far more than its text.
	mostDocument = 16 << 20
	// mostInput bounds the memory for all objects.
	mostInput = 256 << 20
	// mostErrors is the largest number of errors that are told.
	mostErrors = 20
	// mostReason is the largest number of bytes of an error, which may have a text of the document.
	mostReason = 500
)

// Skipped is a document, a file or a folder without objects.
type Skipped struct {
	Position
	Reason string
}

// Load returns the objects of files, of the manifests in folders and the folders below, and of the standard input, which is "-".
//
// The manifests of a folder are its files *.yaml, *.yml and *.json, in the order of [filepath.WalkDir]. Hidden folders below it
// are left out. Load follows symbolic links. It reads each file and each folder once, so that no object is there twice, and a
// link to a folder above ends. The error has a line for each of the first documents that cannot be read.
func Load(paths []string, stdin io.Reader) ([]Object, []Skipped, error) {
	return load(paths, stdin, mostDocument, mostInput)
}

func load(paths []string, stdin io.Reader, mostDocument, mostInput int) ([]Object, []Skipped, error) {
	l := loader{mostDocument: mostDocument, mostInput: mostInput, left: mostInput, seen: map[int64][]fs.FileInfo{}}
	for i, path := range paths {
		switch {
		case l.left < 0:
		case path == "":
			l.fail(errors.New("the name of a file is empty"))
		case path != "-":
			if !l.path(path, true) {
				l.skip(Position{File: path}, "it has no manifests")
			}
		case !slices.Contains(paths[:i], "-"):
			l.read("", stdin)
		}
	}
	if l.failed > mostErrors {
		l.errs = append(l.errs, fmt.Errorf("and %d more", l.failed-mostErrors))
	}
	return l.objects, l.skipped, errors.Join(l.errs...)
}

// loader is what Load has read.
type loader struct {
	mostDocument, mostInput int
	objects                 []Object
	skipped                 []Skipped
	errs                    []error
	failed                  int
	// left is the number of bytes that may still be read. It is below 0 after the limit was reached.
	left int
	// seen has the files and folders by their sizes.
	seen map[int64][]fs.FileInfo
}

func (l *loader) fail(err error) {
	if l.failed++; l.failed <= mostErrors {
		l.errs = append(l.errs, err)
	}
}

func (l *loader) skip(p Position, reason string) {
	l.skipped = append(l.skipped, Skipped{p, reason})
}

// failAt keeps an error of a file without its operation and its name.
func (l *loader) failAt(p Position, err error) {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	reason := strings.ReplaceAll(err.Error(), "\n", ", ")
	if found := located.FindStringSubmatch(reason); found != nil {
		reason = found[1] + found[3]
	}
	l.fail(fmt.Errorf("%s: %s", p, shorttext.Line(reason, mostReason)))
}

// path reads a file or a folder, and reports whether it had one to read or was read before. Only a path that is named may be a pipe,
// such as that of a shell's <(helm template web ./chart).
func (l *loader) path(path string, named bool) bool {
	info, err := os.Stat(path)
	switch {
	case l.left < 0:
	case err != nil:
		l.failAt(Position{File: path}, err)
	case l.isSeen(info):
	case info.IsDir():
		return l.folder(path)
	case !info.Mode().IsRegular() && !named:
		l.failAt(Position{File: path}, errors.New("it is neither a file nor a folder"))
	default:
		l.file(path)
	}
	return true
}

// isSeen reports whether a file was read before, and remembers it.
func (l *loader) isSeen(info fs.FileInfo) bool {
	before := l.seen[info.Size()]
	if slices.ContainsFunc(before, func(other fs.FileInfo) bool { return os.SameFile(other, info) }) {
		return true
	}
	l.seen[info.Size()] = append(before, info)
	return false
}

// folder reads the manifests of a folder, and reports whether it has any.
func (l *loader) folder(path string) bool {
	entries, err := os.ReadDir(path)
	if err != nil {
		l.failAt(Position{File: path}, err)
		return true
	}
	found := false
	for _, entry := range entries {
		name := filepath.Join(path, entry.Name())
		isManifest := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
		isFolder := entry.IsDir()
		if entry.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(name)
			isFolder = err == nil && info.IsDir()
		}
		switch {
		case isFolder && strings.HasPrefix(entry.Name(), "."):
		case isFolder, isManifest:
			found = l.path(name, false) || found
		}
	}
	return found
}

func (l *loader) file(path string) {
	file, err := os.Open(path)
	if err != nil {
		l.failAt(Position{File: path}, err)
		return
	}
	defer func() { _ = file.Close() }()
	l.read(path, file)
}

// errFull is the error of a reader after the last byte that may be read.
var errFull = errors.New("the input is too large")

// bounded reads what may still be read.
type bounded struct {
	in   io.Reader
	left *int
}

func (b bounded) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	if *b.left -= n; *b.left < 0 {
		return 0, errFull
	}
	return n, err
}

// read reads the documents of a file.
func (l *loader) read(name string, in io.Reader) {
	r := reader{in: bufio.NewReader(bounded{in, &l.left}), most: l.mostDocument}
	had := len(l.objects) + len(l.skipped) + l.failed
	for o := range r.objects {
		o.File = name
		if l.left -= r.copied; l.left < 0 {
			o.Err = errFull
		}
		r.copied = 0
		switch {
		case errors.Is(o.Err, errFull):
			l.failAt(Position{File: name}, fmt.Errorf("with it, all files have more than %s: read them in several calls", size(l.mostInput)))
			return
		case o.isOther:
			l.skip(o.Position, "it has no apiVersion and no kind")
		case o.Err != nil:
			l.failAt(o.Position, o.Err)
		default:
			o.Text = nil
			l.objects = append(l.objects, o)
		}
	}
	switch {
	case len(l.objects)+len(l.skipped)+l.failed > had:
	case r.documents == 0:
		l.skip(Position{File: name}, "it has no documents")
	default:
		l.skip(Position{File: name}, "it has no objects")
	}
}
