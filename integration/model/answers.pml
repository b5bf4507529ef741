/* Answers that say what was read in a root, and wait for a peer that need not read them.
 * See doc.go. Root 1 is the same name granted again (REGRANT). NARROW: before it ends, less
 * may be read in root 0. An answer has PIECES pieces; one writer writes all of them. */
#include "gate.pml"
#define NA 2
#define PIECES 3

byte narrowed[2];            /* root.narrowed */

/* An answer: 0: none, 1: it waits or is being written, 2: over. */
byte answer[NA];
byte readIn[NA];             /* what the properties look at: the root that it was read in */
bit stamped[NA];             /* Stamps: there was a root, */
byte ofRoot[NA], asOf[NA];   /* which, and its root.narrowed */
bit writing;                 /* jsonline.Writer.out is taken */
byte late[2];                /* so many pieces of a root were written that may not be read any more */

/* What was read may not be shown any more: its root has ended, or was narrowed, and that has
 * returned. */
#define GONE(a) (ret[readIn[a]] || nret && readIn[a]==0)

/* code: guard.(*Stamps).Add */
inline stamp(a) {
  if :: atomic { cur==0 -> stamped[a] = 0 }
     :: atomic { cur!=0 -> stamped[a] = 1; ofRoot[a] = cur-1 };
        asOf[a] = narrowed[ofRoot[a]]
  fi }

/* code: guard.(*Stamps).Err */
inline recheck(a, ok) {
  ok = stamped[a];
  if :: ok -> ok = live[ofRoot[a]] :: else fi;
  if :: ok -> ok = narrowed[ofRoot[a]]==asOf[a] :: else fi }

/* A request: it is stamped, read through the gate, and answered.
 * code: broker.(*Session).run, broker.(*Session).path, broker.(*Session).answer */
proctype Request(byte a) {
  byte r, g; bit in;
#ifndef M_STAMPLATE
  stamp(a);
#endif
  atomic { if :: cur==0 -> goto over :: else -> r = cur-1 fi };
  acquire(r, g, in);
  if :: in -> skip :: else -> goto over fi;
  atomic { in = r!=0 || !hid; readIn[a] = r };   /* the rights and patterns */
  release(r, g);
  if :: in -> skip :: else -> goto over fi;
#ifdef M_STAMPLATE
  stamp(a);
#endif
  answer[a] = 1;
over: skip }

/* The writer of one connection. The peer may stop reading at any piece, for ever.
 * code: broker/internal/jsonline.(*Writer).SendIf,
   broker/internal/jsonline.(*Writer).writePieces, broker/internal/jsonline.(*Writer).join */
proctype Writer(byte a) {
  byte n; bit ok;
end_w: answer[a]==1;
end_o: atomic { !writing -> writing = 1 };
  ok = 1;
  do
  :: n<PIECES ->
#ifdef M_NOSECONDLOOK
     skip;
#elif defined(M_FIRSTPIECEONLY)
     if :: n==0 -> recheck(a, ok) :: else fi;
#else
     recheck(a, ok);
#endif
     if :: ok -> skip :: else -> break fi;
end_p: atomic { if :: 1 -> skip :: 1 -> goto stuck fi };          /* the peer takes it, or never reads again */
     atomic { late[readIn[a]] = late[readIn[a]] + GONE(a); n++;
              assert(late[readIn[a]] <= 1) }                      /* P8 */
  :: else -> break
  od;
  atomic { answer[a] = 2; writing = 0; n = 0; ok = 0 };
  goto done;
stuck:
end_s: 0;
done: skip }

/* code: guard.(*Registry).end, guard.(*Registry).endLocked, guard.(*Registry).shut,
   guard.(*root).drainForEnd */
inline revoke(e) {
  live[e] = 0;
  cur = 0;
  newGen(e);
  NONE(running, e);
  ret[e] = 1 }                                                    /* P3: it waits for no peer */

/* code: guard.(*Registry).change, guard.(*Registry).changeLocked, guard.(*Registry).narrow */
inline narrow() {
#ifdef M_COUNTFIRST
  narrowed[0]++;
#endif
  hid = 1;
#ifndef M_COUNTFIRST
  narrowed[0]++;
#endif
  newGen(0);
  NONE(running, 0);
  nret = 1 }

/* code: guard.(*Registry).Revoke */
proctype Owner() {
#ifdef NARROW
  narrow();
#endif
  revoke(0);
#ifdef REGRANT
  atomic { live[1] = 1; cur = 2 };                                /* code: guard.(*Registry).commit */
  revoke(1)
#endif
}

init { atomic {
  live[0] = 1; cur = 1;
  byte i = 0;
  do :: i<NA -> run Request(i); run Writer(i); i++ :: else -> break od;
  run Owner() } }
