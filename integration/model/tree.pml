/* The tree and the broker: what `revoke` and the narrowing of rights promise of the
 * source and of those who are told of it. See doc.go.
 *
 * Root 1 is the same name granted again (REGRANT, MEANWHILE), or the root around root 0
 * (NESTED). TOGETHER: one call ends both. CROSSWISE: each lies in the other, and two calls
 * end one each. REMOTE: the source can hang, operations are answered early. DEADLINE:
 * whoever waits for an operation or a call may give up at any time. */
#include "gate.pml"
#ifndef NW
#define NW 2
#endif

byte changes[2*GENS];        /* generation.changes */
byte cut[2];                 /* generation.cut, as bits */
byte fence;                  /* NESTED: what the outer root's nesting has: 1 the root, 2 a tombstone */
bit clean[2];                /* the ending has returned, and reported nothing that is left */

/* An operation and its part that is in system calls. */
mtype = { idle, under_way, finished, abandoned };
mtype st[NW];                /* of the gate package's detached */
byte pr[NW], pg[NW]; bit pwrite[NW];   /* the lease: root, generation; it is a write */
byte crossed[NW];            /* the lease has crossed root 0: 1+generation; 0: it has not */
byte counted[NW];            /* the crossing is counted in running: 1+generation; 0: it is not */
bit answered[NW];            /* detached.answered */
/* What the properties look at: who is in Lease.Change, whose call is in the source, and
 * of which roots, as bits, an ending or a narrowing has reported the call as left. */
bit asks[NW], calls[NW]; byte left[NW];

#ifdef WATCH
bit wstop, wdone;            /* Watch.ctx has ended, Watch.done is closed */
#endif

#define TOUCHES(w, r) (pr[w]==r || crossed[w]!=0 && r==0)

/* code: guard.(*detached).uncross */
inline uncross(w) { atomic { if :: counted[w] -> running[G(0,counted[w]-1)]--; counted[w] = 0 :: else fi } }

/* code: guard.countChange */
inline countChange(w, by) {
#ifndef M_NOCOUNT
  atomic { changes[G(pr[w],pg[w])] = changes[G(pr[w],pg[w])] + (by); asks[w] = !asks[w] };
  if :: crossed[w]!=0 -> changes[G(0,crossed[w]-1)] = changes[G(0,crossed[w]-1)] + (by) :: else fi
#else
  skip
#endif
}

/* code: guard.(*root).mayChange */
inline mayChange(r, g, a, may) {
  if :: atomic { cut[r]&BIT(g) -> may = 0 } :: atomic { !(cut[r]&BIT(g)) -> skip } fi;
  if :: a -> atomic { may = may && gen[r]==g } :: else fi }

/* code: guard.(*Lease).Change */
inline change(w) {
#ifndef M_ASKFIRST
  countChange(w, 1);
#endif
  may = 1;
#ifndef M_NOASK
  a = answered[w];
  mayChange(pr[w], pg[w], a, may);
#ifndef M_ASKOUTER
  if :: crossed[w]!=0 -> mayChange(0, crossed[w]-1, a, may) :: else fi;
#endif
#endif
#ifdef M_ASKFIRST
  countChange(w, 1);
#endif
  if :: may ->
        atomic { calls[w] = 1;
                 assert(!(TOUCHES(w,0) && ret[0]) || left[w]&1);   /* P2: no change begins after the ending, */
                 assert(!(TOUCHES(w,1) && ret[1]) || left[w]&2);   /* but for those that it has reported */
                 assert(!(nret && !rw[pr[w]]) || left[w]&BIT(pr[w])) };  /* P5 */
        skip;                                                     /* in the source: as long as it takes */
        atomic { calls[w] = 0; left[w] = 0 }
     :: else
  fi;
  countChange(w, -1);
  may = 0; a = 0 }

#ifdef COPYUP
/* A staged root copies a file before it is changed: the copy is made, written in pieces, and
 * takes its place, each by a call of its own. code: vfs/internal/beneath.(*upCopy).prepareFile,
   vfs/internal/beneath.copyContents, vfs/internal/beneath.(*upCopy).moveTo */
inline copyUp(w) {
  change(w);
#ifdef M_COPYDIRECT
  atomic { calls[w] = 1; assert(!(TOUCHES(w,0) && ret[0]) || left[w]&1) }; calls[w] = 0;
#else
  change(w);
#endif
  change(w) }
#endif

/* The system calls of an operation. The second change is that of a staged write: its
 * rename. code: vfs/internal/gate.runDetached, vfs/internal/gate.runRecovering,
   vfs/internal/gate.guardPanic */
proctype Part(byte w) {
  byte g; bit a, may, in;
end_p: do
  :: st[w]==under_way || st[w]==abandoned ->
     if :: atomic { st[w]==abandoned -> goto over } :: atomic { st[w]!=abandoned -> skip } fi;
     skip;                                                        /* calls that only read */
#ifdef NESTED
     /* code: guard.(*Lease).EnterIfNested, guard.(*Lease).enterRoot, guard.(*detached).cross */
     if :: pr[w]==1 && !crossed[w] ->
           acquire(0, g, in);
           if :: in -> atomic { crossed[w] = g+1;
#ifdef REMOTE
                         if :: answered[w] -> running[G(0,g)]-- :: else -> counted[w] = g+1 fi
#else
                         counted[w] = g+1
#endif
                         ; g = 0; in = 0 }
              :: else -> atomic { g = 0; goto over } fi
        :: else fi;
#endif
#ifdef COPYUP
     if :: pwrite[w] -> copyUp(w); change(w) :: else fi;
#else
     if :: pwrite[w] -> change(w); change(w) :: else fi;
#endif
over:
#ifdef REMOTE
     if :: atomic { st[w]==under_way -> st[w] = finished; may = 1 } :: atomic { st[w]==abandoned -> skip } fi;
     atomic { if :: may -> may = 0 :: else -> st[w] = idle; pr[w] = 0; pg[w] = 0; crossed[w] = 0; answered[w] = 0 fi }
#else
     st[w] = finished
#endif
  od }

/* An operation of a peer or of a request of the mount, by a path or by what is open: a
 * file, an upload. code: guard.(*Registry).Admit, vfs/internal/gate.Do, vfs/internal/gate.DoPrepared */
proctype Op(byte w) {
  byte r, g; bit ok, wr, held;
end_o: do
  :: atomic { st[w]==idle -> break }                              /* or P3 would not find an ending that is stuck */
  :: atomic { st[w]==idle && !counted[w] -> if :: wr = 0 :: wr = 1 fi; if :: held = 0 :: held = 1 fi; ok = 1; left[w] = 0; answered[w] = 0 };
     /* code: guard.(*Lease).checkRequest, guard.(*Lease).findRoot */
#ifdef NESTED
     r = 1;                                                       /* through the root around it */
#else
     if :: held -> r = 0                                          /* Request.Held */
#ifdef M_BYNAME
           ; atomic { if :: cur==0 -> ok = 0 :: else -> r = cur-1 fi }
#endif
        :: else -> atomic { if :: cur==0 -> ok = 0 :: else -> r = cur-1 fi } fi;
#endif
     if :: ok -> skip :: else -> goto next fi;
#ifdef M_POLICYFIRST
     ok = !wr || rw[r];
     if :: ok -> skip :: else -> goto next fi;
#endif
     acquire(r, g, ok);
     if :: ok -> skip :: else -> goto next fi;
#ifndef M_POLICYFIRST
     ok = !wr || rw[r];
#endif
#ifdef NESTED
     atomic { ok = ok && fence!=2 };                              /* Lease.nesting */
#endif
     if :: ok -> atomic { assert(!held || r==0 || fence);         /* P4 */
                          pr[w] = r; pg[w] = g; pwrite[w] = wr; st[w] = under_way };
           if :: st[w]==finished ->
#ifdef M_UNCROSSEARLY
                 uncross(w);
#endif
                 assert(!(clean[0] && TOUCHES(w,0)) && !(clean[1] && TOUCHES(w,1)));  /* P1: its answer */
                 atomic { st[w] = idle; uncross(w); pr[w] = 0; pg[w] = 0; crossed[w] = 0 }  /* code: guard.(*Lease).release */
#ifdef REMOTE
              :: atomic { st[w]==under_way -> st[w] = abandoned };  /* the root ends, or its time is up */
                 answered[w] = 1;                                 /* code: guard.(*Lease).Abandon */
                 uncross(w)
#endif
           fi
        :: else fi;
     release(r, g);
next: atomic { r = 0; g = 0; ok = 0; wr = 0; held = 0 }
  od }

#ifdef WATCH
/* A watch's goroutine. code: vfs/watch.(*Watch).run, vfs/watch.(*Watch).loop */
proctype Watch() {
  byte g; bit in;
end_h: do
  :: wstop -> break
  :: dead[0] -> break
  :: else ->
     acquire(0, g, in);                         /* code: vfs/watch.admit */
     if :: in -> skip; release(0, g) :: else -> break fi;
     /* code: vfs/watch.(*Watch).mayReport */
     if :: atomic { dead[0] -> break } :: atomic { !dead[0] -> skip } fi;
     if :: atomic { wstop -> break } :: atomic { !wstop -> skip } fi;
     assert(!ret[0]);                           /* P7. code: vfs/watch.(*Watch).report, vfs/watch.(*Watch).handOver */
     g = 0; in = 0
  od;
  assert(!ret[0]);                              /* the last event, that of the end */
  wdone = 1 }
#endif

/* code: guard.(*root).drain, guard.(*root).drainOrCut */
inline drain(r, cuts) {
#ifndef M_NODRAIN
  newGen(r);
  if :: NONE(running, r)
#ifdef DEADLINE
     :: err = 1;
#ifndef M_NOCUT
        if :: cuts -> cut[r] = older[r] :: else fi
#endif
#endif
  fi
#else
  skip
#endif
}

/* code: guard.(*root).settle */
inline settle(r) {
#ifndef M_NOSETTLE
  if :: NONE(changes, r) -> some = 0
#ifdef DEADLINE
     :: some = 1
#endif
  fi;
  if :: atomic { !running[G(r,1)] && !changes[G(r,1)] -> older[r] = older[r]&5 } :: atomic { running[G(r,1)] || changes[G(r,1)] -> skip } fi;
  if :: atomic { !running[G(r,0)] && !changes[G(r,0)] -> older[r] = older[r]&6 } :: atomic { running[G(r,0)] || changes[G(r,0)] -> skip } fi;
  atomic { some = some && !NONE(changes, r); err = err|some;
           w = 0; do :: w<NW -> left[w] = (left[w]&(3-BIT(r)))|BIT(r)*(some && asks[w] && TOUCHES(w,r)); w++ :: else -> break od; w = 0 }
#else
  skip
#endif
}

/* code: vfs/watch.(*Hub).Invalidate, vfs/watch.(*Watch).endOf */
inline tell() {
#ifdef WATCH
  wstop = 1;
#ifndef M_NOWATCHWAIT
  wdone;
#endif
#endif
  skip }

/* P2: what is in the source still has been reported. */
#if NW==2
#define STILL(r) assert(err || !(calls[0] && TOUCHES(0,r)) && !(calls[1] && TOUCHES(1,r)))
#else
#define STILL(r) assert(err || !(calls[0] && TOUCHES(0,r)))
#endif

/* code: guard.(*Registry).end, guard.(*Registry).endLocked, guard.(*Registry).shut,
   guard.(*root).drainForEnd */
inline revoke(e) {
  live[e] = 0;
  atomic { cur = 0; fence = fence*2 };
  dead[e] = 1;
  drain(e, 1);
  tell();
#ifdef NESTED
  /* code: guard.(*Registry).narrowViews */
  drain(1, 0);
  settle(1);
#endif
  settle(e);
  atomic { ret[e] = 1; clean[e] = !err; STILL(e); err = 0; some = 0 } }

#ifdef TOGETHER
byte drained, settled;       /* so many of the roots that end in one call */
bit failed;                  /* the call returns an error */

/* What endLocked does for one of the roots, side by side. The root around ends, so that
 * views do not judge it anew; if it is shut later, it has a tombstone until then.
 * code: guard.(*Registry).endLocked, guard.(*Registry).flushAndShut, guard.sideBySide */
proctype Ending(byte e) {
  byte w; bit err, some;
  live[e] = 0;
  atomic { cur = 0; if :: e==0 && live[1] -> fence = 2 :: else fi };
  dead[e] = 1;
  drain(e, 1);
  drained++;
  drained==2;                                   /* all are, before any is settled */
  settle(e);
  atomic { ret[e] = 1; STILL(e); failed = failed|err; settled++ } }

/* code: guard.(*Registry).RevokeAll, guard.(*root).tryLockLive */
inline revokeBoth() {
  atomic { run Ending(0); run Ending(1) };
  atomic { settled==2 -> clean[0] = !failed; clean[1] = !failed } }
#endif

#ifdef CROSSWISE
bit changing[2], takenBack[2];  /* root.changing is taken, root.takenBack is closed */

/* One of two endings at the same time. Each stands for a call that ends several roots, one
 * of which lies in a root that the other call ends. code: guard.(*Registry).lockChanges,
   guard.(*Registry).endLocked */
proctype Ending(byte e) {
  byte w; bit err, some;
  atomic { !changing[e] -> changing[e] = 1 };
  live[e] = 0;
  atomic { if :: e==0 && live[1] -> fence = 2 :: else fi };
  dead[e] = 1;
  drain(e, 1);
  takenBack[e] = 1;
  /* code: guard.(*Registry).narrowViews, guard.(*Registry).lockLiveChanges */
  if :: atomic { !changing[1-e] -> changing[1-e] = 1 };
        if :: atomic { live[1-e] -> skip }; drain(1-e, 0); settle(1-e) :: atomic { !live[1-e] -> skip } fi;
        changing[1-e] = 0
#ifndef M_WAITWHOLE
     :: takenBack[1-e]
#endif
  fi;
  settle(e);
  atomic { STILL(e); ret[e] = 1; changing[e] = 0; clean[e] = !err } }
#endif

/* code: guard.(*Registry).change, guard.(*Registry).changeLocked, guard.(*Registry).narrow,
   guard.(*Registry).Set */
inline narrow() {
  rw[0] = 0;
  drain(0, 1);
  settle(0);
  atomic { nret = 1; STILL(0); err = 0; some = 0 } }

/* code: guard.(*Registry).Revoke, guard.(*Registry).endAll */
proctype Owner() {
  byte w; bit err, some;
#ifdef NARROW
  narrow();
#ifdef WIDEN
  atomic { nret = 0; rw[0] = 1 };
#endif
#endif
#ifdef TWICE
  narrow()
#elif defined(TOGETHER)
  revokeBoth()
#elif defined(CROSSWISE)
  atomic { run Ending(0); run Ending(1) }
#else
  revoke(0);
#if defined(REGRANT) || defined(MEANWHILE)
  cur==2;
  revoke(1)
#endif
#endif
}

#if defined(REGRANT) || defined(MEANWHILE)
/* A grant of the name that has come free, by the owner or by a consent that is answered.
 * code: guard.(*Registry).commit, broker.(*consentCall).grant */
proctype Grantor() {
#ifdef MEANWHILE
  atomic { cur==0 -> live[1] = 1; rw[1] = 1; cur = 2 }
#else
  atomic { ret[0] -> live[1] = 1; rw[1] = 1; cur = 2 }
#endif
}
#endif

init { atomic {
  live[0] = 1; rw[0] = 1;
#ifdef NESTED
  live[1] = 1; rw[1] = 1; fence = 1;
#endif
  byte i = 0;
  do :: i<NW -> st[i] = idle; run Op(i); run Part(i); i++ :: else -> break od;
#ifdef WATCH
  run Watch();
#endif
#if defined(REGRANT) || defined(MEANWHILE)
  run Grantor();
#endif
  run Owner() } }
