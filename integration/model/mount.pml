/* The mount, the kernel and the programs: what `revoke` and the narrowing of rights
 * promise of everything that the kernel keeps. See doc.go.
 *
 * The mount's top directory has one name, the root's. Each root has an inode D (its
 * directory) and an inode X (a file in it). Root 1 is the same name granted again
 * (REGRANT). With DISPLACE there is one root, and its X is two inodes: the second has
 * the identity of the first, which was given up. Each statement, or atomic sequence, is
 * one step; everything between may be interleaved.
 *
 * NAMES, PAGES, LIST and NESTED choose what programs do, REGRANT, NARROW and PATTERNS
 * what the owner does. M_ flags are mutations. */
#include "gate.pml"
#ifndef NU
#define NU 1
#endif
#define NW 2
#ifdef DISPLACE
#define ROOT(x) 0
#define NAMED(e) (Xn[0] || Xn[1])
#define OTHER(step) step     /* for the other X */
#else
#define ROOT(x) (x)
#define NAMED(e) (Xn[e])
#define OTHER(step)
#endif
#ifdef FORGET
#define COUNTED(step) step   /* for the counters of FORGET */
#else
#define COUNTED(step)
#endif

/* The mount. Nodes are bits: 1 is D, 2 is X of inode 0, 4 is X of inode 1. */
byte views, ended;           /* Mount.views of the name, as bits of roots; view.ended */
byte table[2];               /* view.byID of each root's view */
byte oW[2];                  /* nodeExtra.open: handles of X for writing */
bit orph;                    /* node.orphan of X of inode 0 */
byte xcur;                   /* DISPLACE: the inode that has X's identity in view.latest */
byte fviews[NW]; bit fwait[NW];   /* request.views, as bits; whom view.drain waits for */
byte unk;                    /* secondRound.nodes: those that the kernel did not know */
#ifdef FORGET
byte refs, kernrefs;         /* X's node: look-ups as the mount counts them, as the kernel does */
byte forgets;                /* FORGET is on its way, of so many lookups */
#endif

/* The kernel. */
byte Tn, Tlk;                /* the top's name leads to D of 1+root; who holds the top's lock shared */
bit Dk[2], Da[2]; byte Dlk[2];    /* D is known, its attributes are valid, its lock is held shared */
bit Xn[2], Xk[2], Xa[2];     /* the name X leads there; X is known, its attributes are valid */
byte Pg[2]; bit Dirty[2], Wb[2];  /* X's page: 0 none, 1 locked, 2 valid; dirty; being written back */
bit ill[2], narrowed;        /* the page has a store made when nobody might write; the narrowing has returned once */
byte Lp[2]; bit Lpos[2], Lc[2], Lv[2]; /* D's cached list: 0 none, 1 old, 2 new; position; complete; D changed */
byte hD[2], hX[2];           /* programs that hold D and X */
byte stale[3];               /* of each asker: inodes changed since it asked; 16: one was evicted */
byte rep[3];                 /* of each asker: 0 waits, IDLE, NO: refused, else the answer */
#define NO 15
#define IDLE 14
mtype = { TLOOK, DATTR, XLOOK, XATTR, XOPEN, XREAD, XWRITE, RDIR1, RDIR2, RDPLUS };
chan q = [3] of { byte, mtype, byte };

#define BUMP(bits) stale[0] = (rep[0]!=IDLE -> stale[0]|(bits) : 0); stale[1] = (rep[1]!=IDLE -> stale[1]|(bits) : 0)
#define ISD(e) BIT(e)
#define ISX(x) BIT(2+(x))
#define EVICTED BUMP(16)

/* kernel: FUSE_NOTIFY_INVAL_INODE, and what it says of an inode that is not known. Pages
 * wait for their lock; a dirty page is written back first. */
inline invalD(e) {
  if :: atomic { !Dk[e] -> unk = unk|1 }
     :: atomic { Dk[e] -> BUMP(ISD(e)); Da[e] = 0; Lp[e] = 0 } fi }
inline invalX(x) {
  if :: atomic { !Xk[x] -> unk = unk|(2<<x) }
     :: atomic { Xk[x] -> BUMP(ISX(x)); Xa[x] = 0 };
        atomic { Pg[x]!=1 && !Wb[x] && !Dirty[x] -> Pg[x] = 0; ill[x] = 0 } fi }

/* kernel: an inode without name and holder goes, and says so by FORGET. */
inline evictX(x) {
  if :: Xk[x] && !Xn[x] && hX[x]==0 && !Wb[x] && !Dirty[x] && Pg[x]!=1 -> Xk[x] = 0; Xa[x] = 0; Pg[x] = 0; ill[x] = 0; EVICTED
        COUNTED(; forgets = forgets+kernrefs; kernrefs = 0)
     :: else fi }
inline evict(e) {
  evictX(e); OTHER(evictX(1);)
  if :: Dk[e] && Tn!=e+1 && hD[e]==0 && !NAMED(e) && Dlk[e]==0 -> Dk[e] = 0; Da[e] = 0; Lp[e] = 0; Lpos[e] = 0; Lc[e] = 0; EVICTED
     :: else fi }
/* kernel: FUSE_NOTIFY_INVAL_ENTRY takes the directory's lock for itself, and d_invalidate
 * drops the names below that nobody holds. */
inline unname(x) { if :: Xn[x] && hX[x]==0 -> Xn[x] = 0 :: else fi }
/* kernel: the top's name */
inline dropT(e) {
  atomic { Tlk==0 -> if :: Tn==e+1 -> Tn = 0; if :: Dlk[e]==0 -> unname(e); OTHER(unname(1)) :: else fi; evict(e) :: else fi } }
/* kernel: the name X */
inline dropX(e) {
  if :: atomic { !Dk[e] -> skip }
     :: atomic { Dk[e] && Dlk[e]==0 -> if :: NAMED(e) -> Lv[e] = 1 :: else fi; Xn[e] = 0; OTHER(Xn[1] = 0;) evict(e) } fi }

/* kernel: fuse_change_attributes and fuse_iget with an answer's attributes. */
inline takeD(u, e) {
  if :: !Dk[e] -> Dk[e] = 1; Da[e] = !(stale[u]&16)
     :: else -> if :: !(stale[u]&ISD(e)) -> Da[e] = 1 :: else fi fi }
/* kernel: the same for X, and its name */
inline takeX(u, x) {
  if :: !Xk[x] -> Xk[x] = 1; Xa[x] = !(stale[u]&16)
     :: else -> if :: !(stale[u]&ISX(x)) -> Xa[x] = 1 :: else fi fi;
  COUNTED(kernrefs++;) OTHER(Xn[1-x] = 0;) Xn[x] = 1 }

inline ask(u, op, arg) { atomic { rep[u] = 0; stale[u] = 0; q!u,op,arg }; rep[u]!=0 }
/* P1: a program that begins after the ending gets nothing of the root. */
#define YIELD(e) assert(!(aft & BIT(e)))

/* A program, and the kernel's part in its system calls.
 * kernel: open, stat, readdir, a load and a store through a mapping, write, close */
proctype Program(byte u) {
  byte aft, e, x, c, hx, old; bit Wr, naft, late; /* c: 1+root of D that is held; hx: 1+inode of X;
                                                  late: X was opened after the narrowing */
#define START aft = ret[0]+2*ret[1]; naft = nret; rep[u] = 0; stale[u] = 0
#define FIN rep[u] = IDLE; stale[u] = 0; aft = 0; naft = 0; e = 0; x = 0; old = 0; goto idle
#define TAKENX x = (rep[u]-1)&1; takeX(u, x); hx = x+1; hX[x]++
#ifdef LEAN        /* fewer states: program 0 walks and looks up, program 1 opens and reads, and none stops */
#define ROLE(n) (u==n)
#else
#define ROLE(n) (1)
#endif
#ifdef REVAL
#define LOOKS ROLE(1)
#else
#define LOOKS (1)
#endif
idle:
end_idle:
  if
#ifndef LEAN
  :: goto fin
#endif
  /* walk to the root's name */
#ifdef REVAL
  /* the name has no timeout: LOOKUP without the directory's lock (d_revalidate) */
  :: atomic { c==0 && Tn!=0 && ROLE(0) -> START }; ask(u, TLOOK, 0);
     atomic { if :: rep[u]!=NO -> e = rep[u]-1; YIELD(e); old = Tn;
                    if :: old==e+1 || old==0 && Dk[e] -> takeD(u, e); c = e+1; hD[e]++ :: else fi
                 :: else fi; FIN }
#else
  :: atomic { c==0 && Tn!=0 -> START; e = Tn-1; YIELD(e); c = e+1; hD[e]++; FIN }
#endif
  /* the name is not known: LOOKUP under the directory's lock */
  :: atomic { c==0 && Tn==0 && Tlk==0 && LOOKS -> START; Tlk++ }; ask(u, TLOOK, 0);
     atomic { if :: rep[u]!=NO -> e = rep[u]-1; YIELD(e); old = Tn; Tn = e+1; takeD(u, e); c = e+1; hD[e]++;
                    if :: old!=0 && old!=e+1 -> evict(old-1) :: else fi
                 :: else fi; Tlk--; FIN }
#if defined(NAMES) || defined(LIST)
  :: atomic { c!=0 -> START; e = c-1; if :: Da[e] -> YIELD(e); FIN :: else fi }; ask(u, DATTR, e);
     atomic { if :: rep[u]!=NO -> YIELD(e); if :: !(stale[u]&ISD(e)) -> Da[e] = 1 :: else fi :: else fi; FIN }
#endif
#ifdef NAMES
  /* walk to X: the directory's attributes have to be valid (default_permissions) */
  :: atomic { c!=0 && hx==0 && Da[c-1] -> START; e = c-1 };
     if :: atomic { Xn[e] -> YIELD(e); hx = e+1; hX[e]++; FIN }
        OTHER(:: atomic { Xn[1] -> YIELD(e); hx = 2; hX[1]++; FIN })
        :: atomic { !NAMED(e) -> Dlk[e]++ }; ask(u, XLOOK, e);
           atomic { if :: rep[u]!=NO -> YIELD(e); TAKENX :: else fi; Dlk[e]--; evict(e); FIN } fi
  /* a LOOKUP beside a program that has X open */
  OTHER(:: atomic { hx!=0 && !NAMED(0) && Da[0] -> START; Dlk[0]++ }; ask(u, XLOOK, 0);
     atomic { if :: rep[u]!=NO -> YIELD(0); x = (rep[u]-1)&1; takeX(u, x) :: else fi; Dlk[0]--; evict(0); FIN })
  :: atomic { hx!=0 -> START; x = hx-1; e = ROOT(x); if :: Xa[x] -> YIELD(e); FIN :: else fi }; ask(u, XATTR, x);
     atomic { if :: rep[u]!=NO -> YIELD(e); if :: !(stale[u]&ISX(x)) -> Xa[x] = 1 :: else fi :: else fi; FIN }
#endif
#ifdef PAGES
  /* open for reading and writing: by the name that is known, or with a LOOKUP */
  :: atomic { c!=0 && hx==0 && ROLE(1) -> START; e = c-1; Dlk[e]++; late = narrowed }; ask(u, XOPEN, e);
     atomic { if :: rep[u]!=NO -> YIELD(e); TAKENX; Wr = (rep[u]>2) :: else fi; Dlk[e]--; evict(e); FIN }
  /* a load through a mapping, or a read of cached pages */
  :: atomic { hx!=0 -> START; x = hx-1; e = ROOT(x);
              if :: Pg[x]==2 -> YIELD(e); OTHER(assert(!(ill[x] && late));) FIN :: Pg[x]==1 -> FIN :: Pg[x]==0 -> Pg[x] = 1 fi };
     ask(u, XREAD, x);
     atomic { if :: rep[u]!=NO -> YIELD(e); Pg[x] = 2 :: else -> Pg[x] = 0 fi; FIN }
#ifndef RO
  /* a store through a mapping, which asks nobody */
  :: atomic { hx!=0 && Wr && Pg[hx-1]==2 && !Wb[hx-1] -> START; x = hx-1; YIELD(ROOT(x)); Dirty[x] = 1; ill[x] = ill[x]|nret; FIN }
  :: atomic { hx!=0 && Wr -> START; x = hx-1 }; ask(u, XWRITE, x); atomic { FIN }
#endif
#endif
#if defined(NAMES) || defined(PAGES) && !defined(LEAN)
  :: atomic { hx!=0 -> START; x = hx-1; e = ROOT(x); hx = 0; hX[x]--; oW[x] = oW[x]-Wr; Wr = 0; late = 0; evict(e); FIN }
#endif
#ifdef LIST
  /* getdents from the start, and once more until it says that there is no more */
  :: atomic { c!=0 && Da[c-1] -> START; e = c-1; Dlk[e]++;
              if :: Lc[e] && (Lp[e]==0 || Lv[e]) -> Lc[e] = 0; Lpos[e] = 0; Lp[e] = 0 :: else fi;
              if :: !Lpos[e] -> Lv[e] = 0 :: else fi };
     if :: atomic { Lc[e] -> YIELD(e); assert(!(naft && Lp[e]==1)); Dlk[e]--; evict(e); FIN }
        :: atomic { !Lc[e] -> skip }; ask(u, RDIR1, e);
           atomic { if :: rep[u]!=NO -> YIELD(e); assert(!(naft && rep[u]==1));
                          if :: !Lc[e] && !Lpos[e] -> Lp[e] = rep[u]; Lpos[e] = 1 :: else fi;
#ifndef PLAIN
                          takeX(u, e)
#endif
                       :: else fi; Dlk[e]--; evict(e); if :: rep[u]==NO -> FIN :: else fi };
           atomic { Dlk[e]++ };
           if :: atomic { Lc[e] -> Dlk[e]--; evict(e); FIN }
              :: atomic { !Lc[e] -> skip }; ask(u, RDIR2, e);
                 atomic { if :: rep[u]!=NO && Lpos[e] -> Lc[e] = 1 :: else fi; Dlk[e]--; evict(e); FIN } fi fi
#endif
#ifdef NESTED
  /* READDIRPLUS of D; its second entry is a root inside this one, its third is X */
  :: atomic { c!=0 -> START; e = c-1; Dlk[e]++ }; ask(u, RDPLUS, e);
     atomic { if :: rep[u]!=NO -> YIELD(e); takeX(u, e) :: else fi; Dlk[e]--; evict(e); FIN }
#endif
#ifndef LEAN
  :: atomic { c!=0 && hx==0 -> START; e = c-1; c = 0; hD[e]--; evict(e); FIN }
#endif
  fi;
fin: skip
}

#if defined(PAGES) && !defined(RO)
/* kernel: the writing back of dirty pages, also when a notification asks for it */
proctype Writeback() {
  byte x;
end_wb: do
  :: atomic { Dirty[0] -> x = 0; Dirty[0] = 0; Wb[0] = 1 }; ask(2, XWRITE, x); atomic { Wb[x] = 0; rep[2] = IDLE; evict(ROOT(x)) }
  :: atomic { Dirty[1] -> x = 1; Dirty[1] = 0; Wb[1] = 1 }; ask(2, XWRITE, x); atomic { Wb[x] = 0; rep[2] = IDLE; evict(ROOT(x)) }
  od }
#endif

/* code: mount.(*request).end */
inline land(w) { atomic { fviews[w] = 0; fwait[w] = 0 } }

/* code: mount.(*request).join */
#ifdef M_LASTVIEW
#define ENTER(w, v) fviews[w] = BIT(v)
#else
#define ENTER(w, v) fviews[w] = fviews[w]|BIT(v)
#endif

/* code: mount.(*Mount).view */
inline view(e, ok) {
  if :: atomic { cur==0 -> ok = 0 } :: atomic { cur!=0 -> e = cur-1 } fi;    /* Registry.Lookup */
  if :: ok -> atomic {
#ifdef M_OLDVIEW
          if :: views!=BIT(e) -> views = BIT(e); table[e] = 0 :: else fi
#else
          if :: !(views>>e) -> table[e] = 0;
#ifdef M_ONEVIEW
                views = BIT(e)
#else
                views = (views&(3-ended))|BIT(e)
#endif
             :: views>>(e+1) -> ok = 0            /* granted again meanwhile */
             :: else fi
#endif
        }
     :: else fi }

#ifdef M_LOSEDISPLACED
#define DISPLACED table[e] = table[e]&5
#else
#define DISPLACED skip
#endif
/* code: mount.(*view).publish, mount.(*view).nodeLocked, mount.(*node).countLocked, mount.(*fileSystem).newHandle */
inline node(e, op, x) {
  atomic {
    if :: op==TLOOK -> if :: views&BIT(e) -> table[e] = table[e]|1 :: else fi
#ifndef PLAIN
       :: op==RDIR1 -> x = e; if :: views&BIT(e) -> table[e] = table[e]|(2<<x) :: else fi
#endif
       :: op==XLOOK || op==XOPEN || op==RDPLUS ->
#ifdef DISPLACE
#ifdef NAMES
          if :: xcur==0 -> xcur = 1; DISPLACED :: skip fi;       /* the number is another file's */
#endif
          x = xcur;
#else
          x = e;
#endif
          if :: views&BIT(e) -> table[e] = table[e]|(2<<x) :: else fi;
#ifndef M_COUNTLATE
          COUNTED(if :: op==XLOOK -> refs++ :: else fi;)
#endif
          if :: op==XOPEN -> oW[x] = oW[x]+pol :: else fi;             /* newHandle */
#ifdef NESTED
          assert(!ret[e])                       /* P1: nothing is published after the ending */
#endif
       :: else
    fi } }
#ifdef FORGET
/* code: mount.(*nodeTable).forget, mount.(*nodeTable).removeUnusedLocked */
proctype Forget() {
end_f: do
  :: atomic { forgets>0 -> refs = refs-forgets; forgets = 0; if :: refs==0 -> table[0] = table[0]&5 :: else fi }
  :: atomic { Xn[0] && hX[0]==0 && Dlk[0]==0 && forgets==0 -> Xn[0] = 0; evict(0) }   /* kernel: memory is short */
  od }
#endif
#if defined(DISPLACE) && defined(NAMES)
/* The file is replaced on the source, which a watch reports. code: mount.(*Mount).sourceChanged, mount.(*delivery).work */
proctype Replace() { dropX(0) }
#endif

#ifdef LEAN                 /* each program has its handler */
#define TAKE q??eval(w),op,e -> u = w
#else
#define TAKE q?u,op,e
#endif
/* A request's handler. code: mount.(*fileSystem).begin, vfs/internal/gate.Do */
proctype Worker(byte w) {
  byte u, e, x, g, r; mtype op; bit ok, pol, h;
end_w: do
  :: atomic { TAKE -> ok = 1; if :: op==XATTR || op==XREAD || op==XWRITE -> x = e; e = ROOT(x) :: else fi };
     if :: op==TLOOK -> view(e, ok) :: else fi;
     if :: ok -> skip :: else -> goto refused fi;
#if !defined(M_ENTERLATE)
     ENTER(w, e);                               /* before the gate */
#endif
#if defined(DISPLACE) && defined(NARROW) && !defined(M_ORPHANWRITES)
     /* code: mount.(*fileSystem).Writev, mount.(*node).isOrphan */
     if :: atomic { op==XWRITE && u==2 && x==0 && orph -> ok = 0 } :: else -> skip fi;
     if :: ok -> skip :: else -> goto refused fi;
#endif
     /* code: guard.(*Lease).checkRequest, guard.(*Lease).findRoot */
     r = e;
     if :: op==XREAD || op==XWRITE -> skip      /* by the hold's root */
#ifdef M_NOEPOCH
        :: else -> atomic { if :: cur==0 -> ok = 0 :: else -> r = cur-1 fi }
#else
        :: else -> atomic { ok = (cur==e+1) }   /* the snapshot's, and Request.Epoch */
#endif
     fi;
     if :: ok -> skip :: else -> goto refused fi;
     acquire(r, g, ok);
     if :: ok -> skip :: else -> goto refused fi;
     atomic { pol = rw[r]; h = hid };
     if :: op==XWRITE && !pol -> ok = 0
        :: op==XWRITE && pol -> atomic { assert(!ret[r]); assert(!(nret && !rw[r]));      /* P2, P5 */
#if defined(DISPLACE) && defined(NARROW)
             assert(!(u==2 && ill[x]))                                                  /* P5 */
#endif
           }
        :: else -> atomic { assert(!ret[r]); assert(r==e) }                              /* P1, P4 */
     fi;
     release(r, g);
     if :: ok -> skip :: else -> goto refused fi;
#ifdef M_ENTERLATE
     ENTER(w, e);
#endif
#ifdef NESTED
     /* code: mount.(*request).lookupEntry, mount.(*request).lookupRoot */
     if :: op==RDPLUS -> ENTER(w, 2); skip; ENTER(w, e) :: else fi;   /* the inner root's Lstat takes its time */
#endif
#ifdef M_PUBLATE
     land(w);
#endif
#ifdef M_REPLYFIRST
     atomic { rep[u] = 1+e };
#endif
     node(e, op, x);
#ifdef M_COUNTLATE
     COUNTED(if :: op==XLOOK -> refs++ :: else fi;)
#endif
#ifdef M_NOTIFYINHANDLER
     if :: op==XWRITE -> invalX(x) :: else fi;
#endif
#ifndef M_PUBLATE
     land(w);
#endif
#ifndef M_REPLYFIRST
     atomic { if :: op==TLOOK -> rep[u] = 1+e :: op==XOPEN -> rep[u] = 1+x+2*pol :: op==XLOOK -> rep[u] = 1+x
                 :: op==RDIR1 -> rep[u] = 1+h :: else -> rep[u] = 1 fi };
#endif
     goto next;
refused:
     land(w); rep[u] = NO;
next: atomic { u = 0; e = 0; x = 0; g = 0; r = 0; ok = 0; pol = 0; h = 0; op = TLOOK }
  od }

bit dropped;
proctype Dropper(byte e) { dropT(e); dropped = 1 }

/* The nodes of which what the kernel keeps is taken back, in any order.
 * code: mount.(*view).all, mount.(*secondRound).dropContent, mount.(*node).dropContent, mount.notifyAll */
inline content(e, nodes) {
  b = nodes;
  do :: b&1 -> b = b&6; invalD(e)
     :: b&2 -> b = b&5; invalX(0)
     :: b&4 -> b = b&3; invalX(1)
     :: b==0 -> break od }

/* code: mount.(*view).drain */
inline drainFlights(e) {
  w = 0; do :: w<NW -> atomic { fwait[w] = (fviews[w]&BIT(e))>>e; w++ } :: else -> break od;
  w = 0; do :: w<NW -> atomic { !fwait[w] -> w++ } :: else -> break od }

/* code: mount.(*Mount).Invalidate, mount.(*view).invalidate */
inline invalidate(e) {
  if :: atomic { !(views&BIT(e)) -> skip }     /* code: mount.(*Mount).viewOf */
     :: atomic { views&BIT(e) -> skip };
#ifdef M_PAGESFIRST
     a = table[e]; unk = 0; content(e, a);
#endif
#ifndef M_NOFLIGHTS
     drainFlights(e);
#endif
     ended = ended|BIT(e)*!live[e];
#if defined(DISPLACE) && defined(NARROW) && !defined(M_NOORPHAN)
     /* code: mount.(*view).orphanWritable, mount.(*view).orphan */
     if :: atomic { oW[0]>0 && xcur==0 -> xcur = 1; DISPLACED; orph = 1 } :: atomic { oW[0]==0 || xcur!=0 -> skip } fi;
#endif
     /* code: mount.(*view).dropNames, mount.waitFor */
     dropped = 0; run Dropper(e);
     if :: dropped :: atomic { Tlk>0 -> skip } fi;    /* dropAfter passes while a program holds the top */
     atomic { a = table[e]; unk = 0 };
#ifndef M_PAGESFIRST
     content(e, a);
#endif
#ifdef M_ROUND2EARLY
     content(e, unk);
#endif
#ifndef M_NONAMES
     /* code: mount.(*node).dropNames */
#ifdef M_KNOWNNAMES
     if :: (a&6) && (a&1) -> dropX(e) :: else fi;
#else
     /* It waits for the lock, also where no name is known, */
     if :: a&1 -> dropX(e)
#ifdef NESTED
        :: atomic { (a&1) && Dlk[e]>0 -> skip }        /* but not for ever: mount.stuckAfter */
#endif
        :: else fi;
#endif
     dropped;
#endif
#if !defined(M_NOROUND2) && !defined(M_ROUND2EARLY)
#ifndef M_NODIRS
     unk = unk|(a&1);                                  /* and the directories, whose lists no lock keeps */
#endif
     content(e, unk);
#endif
     dropped
  fi }

/* code: mount.(*Mount).Flush, mount.(*view).flush, mount.(*node).isOpenForWriting */
inline flush(e) {
  if :: views&BIT(e) && (table[e]&2) && oW[0]>0 -> invalX(0)
     :: views&BIT(e) && (table[e]&4) && oW[1]>0 -> invalX(1)
     :: else fi }

/* code: guard.(*root).drain, guard.(*root).drainOrCut */
inline drain(r) {
#ifndef M_NODRAIN
  newGen(r);
  NONE(running, r)
#else
  skip
#endif
}

/* code: guard.(*Registry).end, guard.(*Registry).endLocked, guard.(*Registry).shut,
   guard.(*root).drainForEnd */
inline revoke(e) {
  flush(e);
#ifdef M_SHUTLAST
  invalidate(e);
#endif
  live[e] = 0;
  cur = 0;
  dead[e] = 1;
  drain(e);
#ifndef M_SHUTLAST
  invalidate(e);
#endif
  ret[e] = 1 }

/* code: guard.(*Registry).change, guard.(*Registry).narrow, guard.(*Registry).Set,
   guard.(*Registry).SetPatterns */
inline narrow() {
  flush(0);
  atomic { rw[0] = 0; hid = 1 };
  drain(0);
  invalidate(0);
  atomic { nret = 1; narrowed = 1 } }

proctype Owner() {
  byte w, a, b;
#ifdef NARROW
  narrow();
#ifdef WIDEN
  atomic { nret = 0; rw[0] = 1 };
#ifndef DISPLACE
  narrow();
#endif
#endif
#elif defined(PATTERNS)
  narrow();
#else
  revoke(0);
#ifdef REGRANT
  cur==2;
  revoke(1);
#endif
#endif
  skip
}

#ifdef REGRANT
/* code: guard.(*Registry).commit, broker.(*consentCall).grant */
proctype Grantor() {
#ifdef MEANWHILE      /* the name is free as soon as the gate is shut */
  atomic { cur==0 -> live[1] = 1; rw[1] = 1; cur = 2 };
#else
  atomic { ret[0] -> live[1] = 1; rw[1] = 1; cur = 2 };
#endif
  /* code: mount.(*Mount).Refresh */
  dropT(0)
}
#endif

init { atomic {
#ifdef WARM           /* the root has been looked up before */
  Tn = 1; Dk[0] = 1; Da[0] = 1; views = 1; table[0] = 1;
#endif
  live[0] = 1; rw[0] = 1; rep[0] = IDLE; rep[1] = IDLE; rep[2] = IDLE;
  byte i = 0;
  do :: i<NU -> run Program(i); i++ :: else -> break od;
  i = 0;
  do :: i<NW -> run Worker(i); i++ :: else -> break od;
#if defined(PAGES) && !defined(RO)
  run Writeback();
#endif
  COUNTED(run Forget();)
#if defined(DISPLACE) && defined(NAMES)
  run Replace();
#endif
#ifdef REGRANT
  run Grantor();
#endif
  run Owner() } }
