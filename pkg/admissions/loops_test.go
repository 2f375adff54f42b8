package admissions

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"
)

// TestEveryLoopIsBounded fails if a condition of any plugin loops over a list or map of user-controlled size
// without checking the size first. CEL needs quadratic time, and the API server refuses the request if the
// condition exceeds its cost budget. Above the bound the condition has to be true, so that the API server
// calls.
func TestEveryLoopIsBounded(t *testing.T) {
	found := 0
	for _, w := range allConditions(t) {
		for _, l := range loopsOf(t, w.expression) {
			found++
			switch {
			case l.bound == nil:
				t.Errorf("%s: a loop over %s has no bound", w.name, l.text())
			case !l.bound.positive:
				t.Errorf("%s: beyond the bound of a loop over %s, the condition is not certain to be true", w.name, l.text())
			case l.bound.items > maxItems || l.outer != nil && l.outer.bound != nil && l.bound.items*l.outer.bound.items > maxInner:
				t.Errorf("%s: a loop over %s has a bound of %d, which is too much", w.name, l.text(), l.bound.items)
			}
		}
	}
	if found < 20 {
		t.Errorf("Got %d loops, want more: the test does not see them", found)
	}
}

const (
	// maxItems is the largest allowed bound: a loop over 1,000 items takes the API server 8 ms.
	maxItems = 1000
	// maxInner is the largest allowed bound of a nested loop.
	maxInner = 5000
)

// TestLoopsOf tests which comparisons TestEveryLoopIsBounded accepts as a bound.
func TestLoopsOf(t *testing.T) {
	for expression, want := range map[string]string{
		"object.a.exists(x, x == 1)":                                               "object.a: none",
		"size(object.a) > 9 || object.a.exists(x, x == 1)":                         "object.a: 9 true",
		"object.a.size() > 9 || object.a.exists(x, x == 1)":                        "object.a: 9 true",
		"object.a.exists(x, x == 1) || size(object.a) > 9":                         "object.a: none",
		"size(object.b) > 9 || object.a.exists(x, x == 1)":                         "object.a: none",
		"size(object.a) > 9 && object.a.exists(x, x == 1)":                         "object.a: none",
		"!(size(object.a) > 9 || object.a.exists(x, x == 1))":                      "object.a: 9 false",
		"!(!(size(object.a) > 9 || !object.a.exists(x, x == 1)))":                  "object.a: 9 true",
		"(size(object.a) > 9 || object.a.exists(x, x == 1)) == false":              "object.a: 9 false",
		"size(object.a) > 9 || true && object.a.map(x, x.b) != []":                 "object.a: 9 true",
		"[1, 2].exists(x, x == 1)":                                                 "",
		"[object.a].exists(l, l.exists(x, x == 1))":                                "object.a: none",
		"[object.a].exists(l, size(l) > 9 || l.exists(x, x == 1))":                 "object.a: 9 true",
		"size(object.a) > 9 || object.a.filter(x, x == 1).exists(y, y)":            "object.a: 9 true, object.a: 9 true",
		"size(object.a) > 9 || object.a.exists(x, size(x.b) > 3 || x.b.all(y, y))": "object.a: 9 true, x.b: 3 true",
		"(size(object.a) > 9 ? object.b : object.c) || object.a.exists(x, x == 1)": "object.a: none",
	} {
		var got []string
		for _, l := range loopsOf(t, expression) {
			bound := "none"
			if l.bound != nil {
				bound = fmt.Sprintf("%d %t", l.bound.items, l.bound.positive)
			}
			got = append(got, l.text()+": "+bound)
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: got loops %q, want %q", expression, got, want)
		}
	}
}

// loop is a comprehension over a value that is not a literal of the condition.
type loop struct {
	over  ast.Expr
	what  ast.ComprehensionExpr
	bound *bound
	// outer is the enclosing loop, if any.
	outer *loop
}

func (l *loop) text() string {
	text, err := parser.Unparse(l.over, nil)
	if err != nil {
		return err.Error()
	}
	return text
}

// bound is a comparison such as size(list) > 1000 that is evaluated before the loop.
type bound struct {
	items int64
	// positive means that the whole condition is true if the comparison is true.
	positive bool
	over     string
}

// walk finds the loops in an expression.
type walk struct {
	loops []*loop
	// names maps variables to the expressions that they stand for: [e].exists(name, …).
	names map[string]ast.Expr
}

func loopsOf(t *testing.T, expression string) []*loop {
	t.Helper()
	env, err := cel.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		t.Fatalf("Parsing %s: %v", expression, issues.Err())
	}
	w := &walk{names: map[string]ast.Expr{}}
	w.visit(parsed.NativeRep().Expr(), state{positive: true})
	return w.loops
}

// state holds the facts that are known at one position of an expression.
type state struct {
	// positive means that the whole condition is true if this position is true.
	positive bool
	// unknown means that no fact is known about the position.
	unknown bool
	bounds  []bound
	outer   *loop
}

func (s state) with(bounds []bound) state {
	s.bounds = slices.Concat(s.bounds, bounds)
	return s
}

func (s state) opaque() state {
	s.unknown = true
	return s
}

func (w *walk) visit(e ast.Expr, s state) {
	switch e.Kind() {
	case ast.CallKind:
		w.call(e.AsCall(), s)
	case ast.SelectKind:
		w.visit(e.AsSelect().Operand(), s.opaque())
	case ast.ListKind:
		for _, x := range e.AsList().Elements() {
			w.visit(x, s.opaque())
		}
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			w.visit(x.AsMapEntry().Key(), s.opaque())
			w.visit(x.AsMapEntry().Value(), s.opaque())
		}
	case ast.ComprehensionKind:
		w.comprehension(e.AsComprehension(), s)
	default:
		// Names and literals hold no loop.
	}
}

func (w *walk) call(c ast.CallExpr, s state) {
	switch c.FunctionName() {
	case operators.LogicalOr:
		for _, x := range c.Args() {
			w.visit(x, s)
			s = s.with(w.boundsIn(x, s))
		}
		return
	case operators.LogicalAnd:
		for _, x := range c.Args() {
			w.visit(x, s)
		}
		return
	case operators.LogicalNot:
		s.positive = !s.positive
		w.visit(c.Args()[0], s)
		return
	case operators.Conditional:
		w.visit(c.Args()[0], s.opaque())
		w.visit(c.Args()[1], s)
		w.visit(c.Args()[2], s)
		return
	}
	if c.IsMemberFunction() {
		w.visit(c.Target(), s.opaque())
	}
	for _, x := range c.Args() {
		w.visit(x, s.opaque())
	}
}

// boundsIn returns the comparisons of sizes that are operands of a disjunction.
func (w *walk) boundsIn(e ast.Expr, s state) []bound {
	if e.Kind() != ast.CallKind {
		return nil
	}
	c := e.AsCall()
	if c.FunctionName() == operators.LogicalOr {
		var out []bound
		for _, x := range c.Args() {
			out = append(out, w.boundsIn(x, s)...)
		}
		return out
	}
	if c.FunctionName() != operators.Greater || c.Args()[0].Kind() != ast.CallKind || c.Args()[1].Kind() != ast.LiteralKind {
		return nil
	}
	size := c.Args()[0].AsCall()
	items, ok := c.Args()[1].AsLiteral().Value().(int64)
	if size.FunctionName() != "size" || !ok {
		return nil
	}
	of := size.Target()
	if !size.IsMemberFunction() {
		of = size.Args()[0]
	}
	return []bound{{items: items, positive: s.positive && !s.unknown, over: (&loop{over: w.source(of)}).text()}}
}

// source returns the expression that supplies the items of a loop: a filtered list is never longer than its
// list, and a variable is replaced by its expression.
func (w *walk) source(e ast.Expr) ast.Expr {
	switch e.Kind() {
	case ast.IdentKind:
		if of, ok := w.names[e.AsIdent()]; ok {
			return w.source(of)
		}
	case ast.ComprehensionKind:
		return w.source(e.AsComprehension().IterRange())
	default:
	}
	return e
}

func (w *walk) comprehension(c ast.ComprehensionExpr, s state) {
	w.visit(c.IterRange(), s.opaque())
	inner := s
	if step := c.LoopStep(); step.Kind() != ast.CallKind || !slices.Contains([]string{operators.LogicalOr, operators.LogicalAnd}, step.AsCall().FunctionName()) {
		inner = s.opaque()
	}
	if c.IterRange().Kind() == ast.ListKind {
		if elements := c.IterRange().AsList().Elements(); len(elements) == 1 {
			w.names[c.IterVar()] = elements[0]
			w.visit(c.LoopStep(), inner)
			delete(w.names, c.IterVar())
			return
		}
		if !slices.ContainsFunc(c.IterRange().AsList().Elements(), func(e ast.Expr) bool { return e.Kind() != ast.LiteralKind }) {
			w.visit(c.LoopStep(), inner)
			return
		}
	}
	l := &loop{over: w.source(c.IterRange()), what: c, outer: s.outer}
	for _, b := range s.bounds {
		if b.over == l.text() && (l.bound == nil || b.positive) {
			l.bound = &b
		}
	}
	w.loops = append(w.loops, l)
	inner.outer = l
	w.visit(c.LoopStep(), inner)
}

// condition is a registered match condition.
type condition struct{ name, expression string }

// allConditions returns the conditions of each plugin alone and of all plugins together, once with the
// default feature gates and once with all gates on.
func allConditions(t *testing.T) []condition {
	t.Helper()
	var out []condition
	for _, on := range []gates{false, true} {
		for _, plugins := range append([][]string{Families().Names()}, alone()...) {
			for _, h := range registered(t, on, plugins...) {
				for _, c := range h.conditions {
					name := "all plugins"
					if len(plugins) == 1 {
						name = plugins[0]
					}
					out = append(out, condition{fmt.Sprintf("%s (%s, %s)", name, h.phase, h.name), c.Expression})
				}
			}
		}
	}
	return out
}

func alone() [][]string {
	var out [][]string
	for _, name := range Families().Names() {
		out = append(out, []string{name})
	}
	return out
}
