//go:build linux

package node

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// restartCommand is the line on the keeper's input that asks for a restart. The end of the input asks for the end.
const restartCommand = "restart"

// keeper starts and removes the namespaces of a node.
type keeper struct {
	*settings

	hierarchies []hierarchy
	cgroups     []string
	process     *exec.Cmd     // init
	ended       chan struct{} // closed when init has ended
}

// keep runs a node until its input ends, which is when the process that started it stops the node or ends for any
// reason, or until a signal. It answers each request with one line on its output: ok, or the error.
func keep(dir string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	s, err := loadSettings(dir)
	if err != nil {
		return err
	}
	k := &keeper{settings: s}
	if k.hierarchies, err = hierarchies(); err != nil {
		return err
	}
	sweep(k.hierarchies)
	requests := make(chan string)
	go func() {
		defer close(requests)
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			requests <- input.Text()
		}
	}()
	err = k.start(true)
	if err == nil {
		// The registry has an address only now.
		err = serveRegistry(s.registry())
	}
	k.answer(err)
	for err == nil {
		select {
		case <-signals:
		case request, more := <-requests:
			if more && request == restartCommand {
				if err = k.kill(); err == nil {
					err = k.start(false)
				}
				k.answer(err)
				continue
			}
		}
		break
	}
	return errors.Join(err, k.remove())
}

func (k *keeper) answer(err error) {
	text := "ok"
	if err != nil {
		text = strconv.Quote(err.Error())
	}
	// If nobody listens, the input ends as well.
	_, _ = fmt.Println(text)
}

// start starts init in namespaces and cgroups of its own, connects it, and tells it to go on.
func (k *keeper) start(first bool) (err error) {
	if k.cgroups, err = makeCgroups(k.hierarchies); err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = write.Close() }()
	err = k.clone(read)
	_ = read.Close()
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.path("node.pid"), []byte(strconv.Itoa(k.process.Process.Pid)), 0o600); err != nil {
		return err
	}
	if k.Number, err = link(k.process.Process.Pid, k.Number); err != nil {
		return err
	}
	if first {
		if err := k.writeFiles(); err != nil {
			return err
		}
		if err := k.save(); err != nil {
			return err
		}
	}
	_, err = write.WriteString("go")
	return err
}

// clone starts init. The kernel kills init if the keeper ends.
func (k *keeper) clone(goOn *os.File) error {
	log, err := os.OpenFile(k.logs("init"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command("/proc/self/exe", k.Dir) //nolint:noctx,gosec // It ends with the keeper, and is this program.
	cmd.Args[0] = initName
	cmd.Env = []string{"PATH=" + k.search(), "HOME=/root"}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{goOn}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, Setsid: true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID | syscall.CLONE_NEWCGROUP,
	}
	k.process, k.ended = cmd, make(chan struct{})
	started, ended := make(chan error), k.ended
	go func() {
		// The death signal is sent when this thread ends, and the child begins in the cgroups of this thread.
		runtime.LockOSThread()
		err := enter(k.cgroups)
		if err == nil {
			err = cmd.Start()
		}
		for _, h := range k.hierarchies {
			err = errors.Join(err, enter([]string{h.dir}))
		}
		started <- err
		if cmd.Process != nil {
			_ = cmd.Wait()
		}
		close(ended)
	}()
	return <-started
}

// kill ends all processes of the node, with which its mounts and its network end, and removes its cgroups.
func (k *keeper) kill() error {
	if k.process == nil || k.process.Process == nil {
		return removeCgroups(k.cgroups)
	}
	_ = k.process.Process.Kill()
	<-k.ended
	err := removeCgroups(k.cgroups)
	// The kernel removes the interface with the namespace, which may take long after the last process has ended.
	return errors.Join(err, unlink(k.Number))
}

// remove removes the node. Only its logs stay, unless the folder is temporary.
func (k *keeper) remove() error {
	err := k.kill()
	if k.Temporary {
		return errors.Join(err, os.RemoveAll(k.Dir))
	}
	entries, readErr := os.ReadDir(k.Dir)
	err = errors.Join(err, readErr)
	for _, entry := range entries {
		if entry.Name() != "logs" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(k.Dir, entry.Name())))
		}
	}
	return err
}
