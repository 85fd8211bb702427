package main

import (
	"go/ast"
	"go/token"
	"strconv"
)

// fixedSizes are kmsg's readers of values of fixed size.
var fixedSizes = map[string]int{
	"readBool": 1, "readInt8": 1, "readInt16": 2, "readUint16": 2, "readInt32": 4, "readUint32": 4, "readInt64": 8, "readFloat64": 8, "readUuid": 16,
}

// variable are kmsg's readers of strings and bytes.
var variable = map[string]string{
	"readString": "opString", "readNullableString": "opNullableString", "readBytes": "opBytes", "readNullableBytes": "opBytes", "internalReadTags": "opTags",
}

// block turns the statements of a decoder, or of a block in it, into fields.
func (g *generator) block(stmts []ast.Stmt) (fs []field) {
	if elem, ok := g.array(stmts); ok {
		return []field{elem}
	}
	for _, s := range stmts {
		fs = append(fs, g.statement(s)...)
		if n := len(fs); n >= 2 && fs[n-2].op == "opNew" {
			fs[n-1].op = "opNullableString"
			fs = append(fs[:n-2], fs[n-1])
		}
	}
	return fs
}

func (g *generator) statement(s ast.Stmt) []field {
	switch s := s.(type) {
	case *ast.BlockStmt:
		return g.block(s.List)
	case *ast.AssignStmt:
		return g.assignment(s)
	case *ast.ExprStmt:
		return g.call(s.X)
	case *ast.IfStmt:
		return g.branch(s)
	case *ast.ForStmt:
		return []field{g.knownTags(s)}
	case *ast.ReturnStmt:
		return nil
	}
	g.fail("statement", s)
	return nil
}

// assignment knows x = readT(&b), perhaps with a conversion around it. Others only rename things.
func (g *generator) assignment(s *ast.AssignStmt) []field {
	if id, ok := s.Lhs[0].(*ast.Ident); ok && id.Name == "isFlexible" {
		g.flexibleFrom, _ = versions(s.Rhs[0])
		return nil
	}
	call, ok := s.Rhs[0].(*ast.CallExpr)
	if !ok {
		return nil
	}
	if len(call.Args) == 1 {
		if inner, ok := call.Args[0].(*ast.CallExpr); ok {
			call = inner
		}
	}
	if f, ok := call.Fun.(*ast.Ident); ok {
		if n := fixedSizes[f.Name]; n > 0 {
			return []field{{op: "opFixed", max: anyVersion, fixed: n}}
		}
		if f.Name == "new" { // a string that is nullable in other versions: decoded as a pointer in all
			return []field{{op: "opNew"}}
		}
	}
	g.fail("assignment", s)
	return nil
}

func (g *generator) call(e ast.Expr) []field {
	call := e.(*ast.CallExpr)
	switch f := call.Fun.(type) {
	case *ast.Ident:
		if op := variable[f.Name]; op != "" {
			return []field{{op: op, max: anyVersion}}
		}
	case *ast.SelectorExpr:
		if f.Sel.Name == "Default" {
			return nil
		}
	}
	g.fail("call", e)
	return nil
}

// branch knows if version ..., if isFlexible, a struct that may be absent, and the check after a tagged field.
func (g *generator) branch(s *ast.IfStmt) []field {
	if s.Init != nil {
		id, ok := s.Init.(*ast.AssignStmt).Lhs[0].(*ast.Ident)
		switch {
		case ok && id.Name == "err":
			return nil
		case ok && id.Name == "present":
			elem := s.Body.List[0].(*ast.AssignStmt).Rhs[0].(*ast.CallExpr).Args[0].(*ast.Ident).Name
			return []field{{op: "opMaybe", max: anyVersion, size: "sizeOf[kmsg." + elem + "]()", fields: g.block(s.Body.List[1:])}}
		}
		g.fail("condition", s)
	}
	if id, ok := s.Cond.(*ast.Ident); ok && id.Name == "isFlexible" {
		return g.block(s.Body.List)
	}
	lo, hi := versions(s.Cond)
	if lo < 0 {
		g.fail("condition", s)
	}
	fs := within(g.block(s.Body.List), lo, hi)
	if s.Else != nil { // a field that became nullable
		fs = append(fs, within(g.block(s.Else.(*ast.BlockStmt).List), hi+1, anyVersion)...)
	}
	return fs
}

func within(fs []field, lo, hi int) []field {
	for i := range fs {
		fs[i].min, fs[i].max = max(fs[i].min, lo), min(fs[i].max, hi)
	}
	return fs
}

// versions reads version >= a, version < b, and version >= a && version <= b. The range is inclusive; lo is -1 for
// another expression.
func versions(e ast.Expr) (lo, hi int) {
	b, ok := e.(*ast.BinaryExpr)
	if !ok {
		return -1, -1
	}
	if b.Op == token.LAND {
		lo, _ = versions(b.X)
		_, hi = versions(b.Y)
		return lo, hi
	}
	lit, ok := b.Y.(*ast.BasicLit)
	if !ok {
		return -1, -1
	}
	n, err := strconv.Atoi(lit.Value)
	if err != nil {
		return -1, -1
	}
	switch b.Op {
	case token.GEQ:
		return n, anyVersion
	case token.LEQ:
		return 0, n
	case token.LSS:
		return 0, n - 1
	}
	return -1, -1
}

// array recognises a block that has `l = readArrayLen(...)`, or b.ArrayLen(), the make of the slice, and a loop over the elements.
func (g *generator) array(stmts []ast.Stmt) (field, bool) {
	var elem field
	found := false
	for _, s := range stmts {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if call, ok := s.Rhs[0].(*ast.CallExpr); ok {
				switch f := call.Fun.(type) {
				case *ast.Ident:
					found = found || f.Name == "readArrayLen"
				case *ast.SelectorExpr: // of a request that has no flexible version
					found = found || f.Sel.Name == "ArrayLen"
				}
			}
		case *ast.IfStmt:
			if t := madeType(s); t != nil {
				elem.size = "sizeOf[" + goType(t) + "]()"
			}
		case *ast.RangeStmt:
			elem.fields = g.block(s.Body.List)
		}
	}
	elem.op, elem.max = "opArray", anyVersion
	if found && (elem.size == "" || len(elem.fields) == 0) {
		g.fail("array", &ast.BlockStmt{List: stmts})
	}
	return elem, found
}

// madeType is T in if l > 0 { a = append(a, make([]T, l)...) }.
func madeType(s *ast.IfStmt) ast.Expr {
	if len(s.Body.List) != 1 {
		return nil
	}
	as, ok := s.Body.List[0].(*ast.AssignStmt)
	if !ok {
		return nil
	}
	call, ok := as.Rhs[0].(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return nil
	}
	mk, ok := call.Args[1].(*ast.CallExpr)
	if !ok {
		return nil
	}
	return mk.Args[0].(*ast.ArrayType).Elt
}

func goType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.ArrayType:
		return "[" + e.Len.(*ast.BasicLit).Value + "]" + goType(e.Elt)
	case *ast.Ident:
		if ast.IsExported(e.Name) {
			return "kmsg." + e.Name
		}
		return e.Name
	}
	return "?"
}

// knownTags reads the loop over tagged fields, in which each case starts with a reader of the field's bytes.
func (g *generator) knownTags(s *ast.ForStmt) field {
	f := field{op: "opTags", max: anyVersion}
	for _, c := range s.Body.List[0].(*ast.SwitchStmt).Body.List {
		clause := c.(*ast.CaseClause)
		if clause.List == nil {
			continue
		}
		n, err := strconv.Atoi(clause.List[0].(*ast.BasicLit).Value)
		if err != nil {
			g.fail("tag", clause)
		}
		f.fields = append(f.fields, field{op: "opTag", max: anyVersion, tag: n, fields: g.block(clause.Body[1:])})
	}
	return f
}
