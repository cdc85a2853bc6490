"""Statements, good and bad.

In good ones `¦` is where the SELECT ends; without it they are the engine's own. In bad
ones `¦` is the place of the mistake; the text beside them is in its message.
"""

from __future__ import annotations

ALL = ("duckdb", "mysql", "postgres", "sqlite")
BACKTICKS = ("mysql", "sqlite")
QUOTES = ("duckdb", "postgres", "sqlite")  # "a" is a name

# Kind, statement, engines.
GOOD: list[tuple[str, str, tuple[str, ...]]] = [
    # The original's line, and what is near to it.
    ("Train", "SELECT * FROM employee¦ LABEL income INTO my_elasticdl_model", ALL),
    ("Train", "SELECT * FROM employee¦ LABEL income INTO my_elasticdl_model;", ALL),
    ("Train", "select * from employee¦ label income into m", ALL),
    ("Train", "SELECT * FROM 'x.csv'¦ LABEL income INTO m", ALL),
    ("Train", "SELECT *\nFROM t\nWHERE a > 1¦\nLABEL income\nINTO m\n;\n", ALL),
    ("Train", "SELECT * FROM t x¦ LABEL x.income INTO m", ALL),
    ("Train", "SELECT * FROM db.t¦ LABEL db.t.income INTO m", ALL),
    ("Train", "SELECT * FROM t¦ LABEL income INTO m WITH train.epoch = 2", ALL),
    ("Train", "SELECT * FROM t¦ LABEL income INTO m COLUMN a, b", ALL),
    ("Train", "SELECT * FROM t label¦ LABEL label INTO m", ALL),
    ("Train", "FROM t¦ LABEL income INTO m", ("duckdb",)),
    ("Train", "SELECT a AS label, b FROM t ORDER BY label¦ LABEL label INTO m", ALL),
    ("Train", "WITH t AS (SELECT 1 AS a) SELECT * FROM t¦ LABEL a INTO m", ALL),
    ("Train", "(SELECT a FROM t) UNION (SELECT a FROM u)¦ LABEL a INTO m", ALL),
    ("Train", "SELECT (SELECT 1) AS x, y FROM t¦ LABEL y INTO m", ALL),
    ("Train", "SELECT `the label` FROM t¦ LABEL `the label` INTO m", BACKTICKS),
    ("Train", 'SELECT "the label" FROM t¦ LABEL "the label" INTO m', QUOTES),
    ("Train", "SELECT [the label] FROM t¦ LABEL x INTO m", ("sqlite",)),
    # TO TRAIN.
    ("Train", "SELECT * FROM t¦ TO TRAIN DNNClassifier LABEL y INTO m", ALL),
    ("Train", "SELECT * FROM t¦ to train DNNClassifier label y into m;", ALL),
    ("Train", "SELECT * FROM t¦ TO TRAIN DNNClassifier INTO m LABEL y", ALL),
    (
        "Train",
        "SELECT c1, c2, class FROM t¦ TO TRAIN ElasticDLKerasClassifier WITH\n"
        "  model.optimizer='adam', model.num_classes=3, train.epoch=2,\n"
        "  engine.num_workers=2,\n"
        "  engine.worker_resource_request='cpu=400m,memory=2048Mi'\n"
        "COLUMN c1, DENSE(c2, 1), BUCKET(c3, [0, 10, 100])\n"
        "LABEL class INTO trained_elasticdl_keras_classifier;",
        ALL,
    ),
    (
        "Train",
        "SELECT * FROM t¦ TO TRAIN WideAndDeepClassifier COLUMN a, b FOR "
        "linear_feature_columns COLUMN EMBEDDING(c, 8) FOR dnn_feature_columns "
        "LABEL y INTO m",
        ALL,
    ),
    ("Train", "SELECT * FROM t¦ TO TRAIN DNNRegressor COLUMN * LABEL y INTO m", ALL),
    ("Train", "SELECT a FROM t¦ TO TRAIN a.b.c WITH model.x=[1, 2] LABEL y INTO m",
     ALL),
    (
        "Train",
        "SELECT * FROM t¦ TO TRAIN DNNClassifier COLUMN CROSS([a, b], 100), "
        "CROSS([BUCKETIZE(x, 5), c], 50) LABEL y INTO m",
        ALL,
    ),
    (
        "Train",
        "SELECT * FROM t¦ TO TRAIN DNNClassifier COLUMN CONCAT(a, b) AS g, "
        "EMBEDDING(g, 8, combiner='sum') LABEL y INTO m",
        ALL,
    ),
    (
        "Train",
        "SELECT * FROM t¦ TO TRAIN DNNClassifier COLUMN SPLIT(tags, ','), "
        "EMBEDDING(SPLIT(tags, ';'), 4, 'sqrtn') LABEL y INTO m",
        ALL,
    ),
    (
        "Train",
        "SELECT * FROM t¦ TO TRAIN DNNClassifier COLUMN label, model, with "
        "LABEL into INTO m",
        ALL,
    ),
    (
        "Train",
        "SELECT * FROM t¦ TO TRAIN DNNClassifier -- the model\nCOLUMN a, /* and */ b\n"
        "LABEL y -- the label\nINTO m -- the name\n",
        ALL,
    ),
    (
        "Train",
        "SELECT 'a -- b' FROM t -- TO TRAIN x INTO y\n WHERE c = ' TO TRAIN x'¦ "
        "TO TRAIN DNNClassifier LABEL y INTO m",
        ALL,
    ),
    ("Train", "SELECT 'it''s' FROM t¦ LABEL y INTO m", ALL),
    ("Train", "SELECT 'it\\'s' FROM t¦ LABEL y INTO m", ("mysql",)),
    ("Train", "SELECT $$a LABEL b INTO c$$ FROM t¦ LABEL y INTO m", ("postgres",)),
    ("Train", "SELECT a FROM t # TO TRAIN x\n¦ LABEL y INTO m", ("mysql",)),
    ("Train", "SELECT a FROM (SELECT a FROM t LIMIT 5) u¦ LABEL a INTO m", ALL),
    ("Train", "SELECT a, {'x': 1} AS s FROM t¦ LABEL a INTO m", ("duckdb",)),
    ("Train", "SELECT a[1] FROM t¦ LABEL a INTO m", ("duckdb", "postgres")),
    ("Train", "SELECT a::int FROM t¦ LABEL a INTO m", ("duckdb", "postgres")),
    (
        "Train",
        "SELECT a FROM t¦ LABEL a INTO m WITH optimizer=ftrl, "
        "optimizer.learning_rate_power=-5e-1",
        ALL,
    ),
    ("Train", "SELECT a FROM t¦ TO TRAIN DNNClassifier WITH train.epoch=.5e1,"
     " train.batch_size=1_000 LABEL a INTO m", ALL),
    (
        "Train",
        "SELECT a FROM t¦ TO TRAIN DNNClassifier WITH validation.select="
        "'SELECT a FROM u TO TRAIN z' LABEL a INTO m",
        ALL,
    ),
    ("Train", "SELECT ä, 名前 FROM täble¦ LABEL 名前 INTO m", ALL),
    ("Train", "SELECT a\r\nFROM t¦\r\nLABEL a\r\nINTO m", ALL),
    ("Train", "SELECT a\tFROM t¦\tLABEL a\tINTO m", ALL),
    # The others.
    ("Predict", "SELECT * FROM t¦ TO PREDICT USING m", ALL),
    ("Predict", "SELECT * FROM t¦ TO PREDICT USING m@2;", ALL),
    ("Predict", "SELECT * FROM t¦ TO PREDICT result USING m", ALL),
    ("Predict", "SELECT * FROM t¦ TO PREDICT result.class USING m", ALL),
    ("Predict", "SELECT * FROM t¦ TO PREDICT db.result.class USING m", ALL),
    ("Predict", "SELECT * FROM t¦ TO PREDICT 'out.parquet' USING m", ALL),
    (
        "Predict",
        "SELECT * FROM t¦ TO PREDICT r WITH predict.batch_size=64 USING m",
        ALL,
    ),
    ("Evaluate", "SELECT * FROM t¦ TO EVALUATE m", ALL),
    ("Evaluate", "SELECT * FROM t¦ TO EVALUATE m@3 LABEL y INTO figures", ALL),
    (
        "Evaluate",
        "SELECT * FROM t¦ TO EVALUATE m WITH validation.metrics='AUC,Accuracy' "
        "LABEL y INTO figures;",
        ALL,
    ),
    ("Explain", "SELECT * FROM t¦ TO EXPLAIN m", ALL),
    ("Explain", "SELECT * FROM t¦ TO EXPLAIN m USING PermutationImportance", ALL),
    ("Explain", "SELECT * FROM t¦ TO EXPLAIN m USING integratedgradients INTO r", ALL),
    (
        "Explain",
        "SELECT * FROM t¦ TO EXPLAIN m WITH summary.plot_type='bar' INTO r",
        ALL,
    ),
    ("ShowModels", "SHOW MODELS", ALL),
    ("ShowModels", "show models;", ALL),
    ("ShowTrain", "SHOW TRAIN m@2", ALL),
    ("DescribeModel", "DESCRIBE MODEL m", ALL),
    ("DropModel", "DROP MODEL m@1;", ALL),
    ("DropModel", "DROP MODEL IF EXISTS m", ALL),
    # The engine's own.
    ("Plain", "SELECT a FROM t WHERE b SIMILAR TO trains", ALL),
    ("Plain", "SELECT a FROM t WHERE b < c - INTERVAL '1 2' DAY TO HOUR", ALL),
    ("Plain", "SELECT 1", ALL),
    ("Plain", "ALTER TABLE x RENAME TO train", ALL),
    ("Plain", "ALTER TABLE x RENAME TO predict", ALL),
    ("Plain", "RENAME TABLE a TO train", ("mysql",)),
    ("Plain", "SELECT label, model FROM t", ALL),
    ("Plain", "SELECT label x FROM t label", ALL),
    ("Plain", "SELECT label x INTO y FROM t", ALL),
    ("Plain", "SELECT * FROM label x INTO y", ("postgres",)),
    ("Plain", "SELECT * FROM t label INTO OUTFILE 'f'", ("mysql",)),
    ("Plain", "SELECT 'TO TRAIN x INTO y'", ALL),
    ("Plain", "SELECT (SELECT 1) /* TO TRAIN x */", ALL),
    ("Plain", "CREATE TABLE train AS SELECT * FROM t", ALL),
    ("Plain", "INSERT INTO t VALUES ('a;b')", ALL),
    ("Plain", "SHOW TABLES", ALL),
    ("Plain", "DESCRIBE model", ALL),
    ("Plain", "DROP TABLE model", ALL),
    ("Plain", "EXPLAIN SELECT ';' FROM t", ALL),
    ("Plain", "COPY t TO 'x.csv'", ("duckdb", "postgres")),
    (
        "Plain",
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN UPDATE t SET a = 1; END",
        ("sqlite",),
    ),
    (
        "Plain",
        "CREATE PROCEDURE p(a INT) BEGIN DECLARE x INT; IF a > 1 THEN SET x = 1; "
        "END IF; WHILE x < 3 DO SET x = x + 1; END WHILE; SELECT CASE x WHEN 1 THEN 2 "
        "END; CASE a WHEN 1 THEN SELECT 1; END CASE; BEGIN END; BEGIN SELECT 2; END; "
        "l: LOOP LEAVE l; END LOOP l; END",
        ("mysql",),
    ),
    (
        "Plain",
        "BEGIN NOT ATOMIC IF 1 THEN SELECT 1; END IF; SELECT 2; END",
        ("mysql",),
    ),
]  # fmt: skip

_T = "SELECT * FROM t TO TRAIN DNNClassifier "
# Statement with the place of the mistake, and a part of the message.
BAD: list[tuple[str, str]] = [
    # Clauses.
    ("SELECT * FROM t TO TRAI¦N", "expected the model"),
    ("SELECT * FROM t TO TRAIN ¦LABEL y INTO m", "expected the model"),
    ("SELECT * FROM t TO TRAIN ¦3 LABEL y INTO m", "expected the model"),
    (_T + "LABEL ¦y", "expected INTO"),
    (f"{_T}WITH train.epoch = ¦{'9' * 5000} LABEL y INTO m", "larger than any"),
    (_T + "WITH optimizer.learning_rate = ¦1e400 LABEL y INTO m", "larger than any"),
    (_T + "COLUMN HASH(a, ¦9999999999) LABEL y INTO m", "expected `buckets`, a"),
    (f"{_T}COLUMN {'a(' * 50}¦{'a(' * 9} LABEL y INTO m", "brackets in 50 others"),
    (_T + "INTO ¦m", "LABEL is missing"),
    (_T + "LABEL ¦INTO m", "expected the label's column"),
    (_T + "LABEL y INT¦O", "expected the name of the model"),
    (_T + "LABEL y INTO ¦3", "expected the name of the model"),
    (_T + "LABEL y ¦LABEL z INTO m", "LABEL is there twice"),
    (_T + "LABEL y INTO m ¦INTO n", "INTO is there twice"),
    (_T + "WITH train.epoch=1 ¦WITH train.epoch=2 LABEL y INTO m",
     "WITH is there twice"),
    ("SELECT * FROM t TO ¦TRAIM DNNClassifier LABEL y INTO m",
     "did you mean `TO TRAIN`?"),
    ("SELECT * FROM t TO ¦predct t.y USING m", "did you mean `TO PREDICT`?"),
    (_T + "¦LABELL y INTO m", "did you mean `LABEL`?"),
    (_T + "¦COLUMNS a LABEL y INTO m", "did you mean `COLUMN`?"),
    (_T + "LABEL y INTO m ¦extra", "expected WITH, COLUMN, LABEL, INTO or the end"),
    (_T + "¦USING other LABEL y INTO m", "job.checkpoint.initFrom"),
    (_T + "COLUMN a¦, FOR g LABEL y INTO m".replace("¦, ", ", ¦"), "expected a column"),
    (_T + "COLUMN a, ¦LABEL y INTO m", "expected a column"),
    (_T + "COLUMN ¦LABEL y INTO m", "expected a column"),
    (_T + "COLUMN a ¦b LABEL y INTO m", "expected WITH"),
    (_T + "COLUMN a FOR wide¦, b FOR deep LABEL y INTO m", "begin the next ones with"),
    ("SELECT * FROM t TO PREDICT ¦r", "expected USING"),
    ("SELECT * FROM t TO PREDICT r ¦LABEL y USING m", "PREDICT needs no label"),
    ("SELECT * FROM t TO PREDICT ¦INTO r USING m", "right behind TO PREDICT"),
    ("SELECT * FROM t TO EVALUAT¦E", "expected the model's name"),
    ("SELECT * FROM t TO EVALUATE ¦USING m", "expected the model's name"),
    ("SELECT * FROM t TO EVALUATE m ¦COLUMN a", "trained with"),
    ("SELECT * FROM t TO EXPLAIN m USING ¦TreeExplainer", "explains no model"),
    ("SHOW TRAI¦N", "expected the model's name"),
    ("SHOW TRAIN m ¦n", "expected the end"),
    ("DROP MODEL m ¦n", "expected the end"),
    ("SHOW MODELS ¦m", "expected the end"),
    # Names.
    (_T + "LABEL y INTO ¦m@2", "names no model"),
    (_T + "LABEL y INTO ¦a/b", "names no model"),
    ("SELECT * FROM t TO PREDICT USING ¦a.b", "names no model"),
    ("SELECT * FROM t TO TRAIN ¦DNNClasifier LABEL y INTO m", "did you mean `DNNClass"),
    ("SELECT * FROM t TO TRAIN ¦hub/image:v1/Net LABEL y INTO m", "image of SQLFlow"),
    (_T + "COLUMN a FOR ¦deep LABEL y INTO m", "one group of columns"),
    ("SELECT * FROM t TO TRAIN WideAndDeepClassifier COLUMN a FOR ¦depp LABEL y INTO m",
     "did you mean `deep`?"),
    # Quotes and brackets.
    ("SELECT ¦'a FROM t LABEL y INTO m", "has no end"),
    (_T + "WITH train.optimizer=¦'adam LABEL y INTO m", "has no end"),
    (_T + "COLUMN HASH¦(a, 3 LABEL y INTO m", "has no end"),
    (_T + "COLUMN BUCKETIZE(a, ¦[1, 2 LABEL y INTO m", "has no end"),
    (_T + "COLUMN EMBEDDING(a,¦, 3) LABEL y INTO m", "expected a value"),
    (_T + "COLUMN EMBEDDING(a, 3¦ 4) LABEL y INTO m".replace("¦ ",
     " ¦"), "expected `,`"),
    (_T + "COLUMN a¦) LABEL y INTO m", "expected WITH"),
    (_T + "COLUMN ¦= LABEL y INTO m", "expected a name"),
    # WITH.
    (_T + "WITH ¦= 3 LABEL y INTO m", "expected an attribute"),
    (_T + "WITH train.epoch ¦3 LABEL y INTO m", "expected = behind `train.epoch`"),
    (_T + "WITH train.epoch = ¦LABEL y INTO m", "expected a value"),
    (_T + "WITH train.epoch = 3, ¦LABEL y INTO m", "expected an attribute"),
    (_T + "WITH train.epoch = ¦'many' LABEL y INTO m", "a whole number, 1 or more"),
    (_T + "WITH train.epoch = 1, ¦train.epoch = 2 LABEL y INTO m", "is there twice"),
    (_T + "WITH ¦train.epoc = 3 LABEL y INTO m", "did you mean `train.epoch`?"),
    (_T + "WITH ¦model.hiden_units = [3] LABEL y INTO m",
     "did you mean `hidden_units`?"),
    (_T + "WITH model.hidden_units = ¦3 LABEL y INTO m", "a list of whole numbers"),
    (_T + "WITH model.dropout = ¦1.5 LABEL y INTO m", "from 0 to below 1"),
    (_T + "WITH optimizer = ¦adan LABEL y INTO m", "did you mean `adam`?"),
    (_T + "WITH ¦optimizer.momentum = 0.9 LABEL y INTO m", "Adam has no `momentum`"),
    (_T + "WITH optimizer.clipnorm = 1, ¦optimizer.clipvalue = 1 LABEL y INTO m",
     "`clipvalue` and `clipnorm` exclude each other"),
    (_T + "WITH optimizer.learning_rate = ¦-0.1 LABEL y INTO m", "a number above 0"),
    (_T + "WITH optimizer.learning_rate = ¦'CosineDecay' LABEL y INTO m",
     "a number above 0"),
    (_T + "WITH optimizer = sgd, optimizer.momentum = ¦1.5 LABEL y INTO m",
     "a number from 0 to 1"),
    (_T + "WITH optimizer.use_ema = true, optimizer.ema_momentum = ¦2 LABEL y INTO m",
     "a number from 0 to 1"),
    (_T + "WITH ¦optimizer.ema_momentum = 0.9 LABEL y INTO m",
     "means nothing without optimizer.use_ema = true"),
    (_T + "WITH optimizer.gradient_accumulation_steps = ¦1 LABEL y INTO m",
     "a whole number, 2 or more"),
    (_T + "WITH job.strategy = 'parameterServer', optimizer.global_clipnorm = 1, "
     "¦optimizer.gradient_accumulation_steps = 4 LABEL y INTO m", "each PS has some"),
    (_T + "WITH engine.distribution_strategy = 'ParameterServerStrategy', "
     "optimizer.global_clipnorm = 1, ¦optimizer.gradient_accumulation_steps = 4 "
     "LABEL y INTO m", "each PS has some"),
    (_T + "WITH ¦optimizer.decay_steps = 10 LABEL y INTO m", "has no `decay_steps`"),
    (_T + "WITH ¦optimizer.loss_scale_factor = 2 LABEL y INTO m", "not take it off"),
    (_T + "WITH optimizer = rmsprop, ¦optimizer.centered = true LABEL y INTO m",
     "Keras makes NaN of embeddings"),
    (_T + "WITH model.activation = ¦'rellu' LABEL y INTO m", "one of relu, gelu"),
    (_T + "WITH ¦model.kernel_regularizer = 'l2' LABEL y INTO m",
     "has no `model.kernel_regularizer`"),
    (_T + "WITH validation.fraction = ¦1 LABEL y INTO m", "from 0 to below 1"),
    (_T + "WITH validation.metrics = ¦'AUK' LABEL y INTO m", "did you mean `AUC`?"),
    (_T + "WITH ¦validation.select = 'SELECT 1', validation.key = 'a' LABEL y INTO m",
     "expected it alone"),
    (_T + "WITH ¦engine.num_worker = 2 LABEL y INTO m", "did you mean `num_workers`?"),
    (_T + "WITH engine.num_workers = ¦'two' LABEL y INTO m", "a whole number"),
    (_T + "WITH ¦engine.restart_policy = 'Always' LABEL y INTO m", "master replaces"),
    (_T + "WITH ¦job.worker.replica = 2 LABEL y INTO m", "did you mean `replicas`?"),
    (_T + "WITH job.worker.replicas = ¦'two' LABEL y INTO m", "a whole number"),
    (_T + "WITH ¦job.data.training = 'x' LABEL y INTO m", "take it out"),
    (_T + "WITH ¦foo = 'x' LABEL y INTO m", "there is no attribute `foo`"),
    (_T + "WITH ¦job = 3 LABEL y INTO m", "a name behind it: job.worker.replicas"),
    (_T + "WITH ¦model = 3 LABEL y INTO m", "a name behind it: model.hidden_units"),
    (_T + "WITH train.epoch = 1, ¦train.epochs = 2 LABEL y INTO m",
     "says what `train.epoch` says already (line 1, column 45)"),
    (_T + "WITH engine.num_epochs = 1, ¦job.training.epochs = 2 LABEL y INTO m",
     "says what `engine.num_epochs` says already"),
    (_T + "WITH train.batch_size = 1, ¦engine.minibatch_size = 2 LABEL y INTO m",
     "says what `train.batch_size` says already"),
    (_T + "WITH engine.num_workers = 1, ¦job.worker.replicas = 2 LABEL y INTO m",
     "says what `engine.num_workers` says already"),
    (_T + "WITH optimizer = adam, ¦model.optimizer = sgd LABEL y INTO m",
     "says what `optimizer` says already"),
    (_T + "WITH model.n_classes = 2, ¦model.num_classes = 3 LABEL y INTO m",
     "says what `model.n_classes` says already"),
    # COLUMN.
    (_T + "COLUMN ¦EMBEDDNG(a, 3) LABEL y INTO m", "did you mean `EMBEDDING`?"),
    (_T + "COLUMN ¦EMBEDDING(a) LABEL y INTO m", "EMBEDDING needs `dim`"),
    (_T + "COLUMN EMBEDDING(a, ¦0) LABEL y INTO m", "1 or more"),
    (_T + "COLUMN EMBEDDING(a, 3, ¦'max') LABEL y INTO m", "mean, sum, sqrtn"),
    (_T + "COLUMN EMBEDDING(a, 3, ¦dims=4) LABEL y INTO m", "did you mean `dim`?"),
    (_T + "COLUMN STANDARDIZE(a, ¦b) LABEL y INTO m", "takes one argument"),
    (_T + "COLUMN STANDARDIZE(¦HASH(a, 3)) LABEL y INTO m", "takes a column or LOG"),
    (_T + "COLUMN EMBEDDING(¦STANDARDIZE(a), 3) LABEL y INTO m", "takes a category"),
    (_T + "COLUMN BUCKETIZE(a, [1, ¦1]) LABEL y INTO m", "boundaries ascend"),
    (_T + "COLUMN BUCKETIZE(a, [1], num_buckets=¦3) LABEL y INTO m", "not both"),
    (_T + "COLUMN BUCKETIZE(a, 100), BUCKETIZE(LOG(a), 10), "
     "BUCKETIZE(a, ¦997), BUCKETIZE(b, 997) LABEL y INTO m",
     "takes 99,700 quantiles, of 10,000 at most"),
    (_T + "COLUMN BUCKETIZE(a, num_buckets=¦10001) LABEL y INTO m", "10,000 buckets"),
    (_T + "COLUMN CROSS(¦[a], 10) LABEL y INTO m", "two or more"),
    (_T + "COLUMN ¦CONCAT(a) LABEL y INTO m", "two or more"),
    (_T + "COLUMN ¦SPARSE(a) LABEL y INTO m", "needs `buckets`"),
    (_T + "COLUMN ¦WEIGHTED_CATEGORY(a) LABEL y INTO m", "needs `buckets`"),
    (_T + "COLUMN WEIGHTED_CATEGORY(a, 9, ':', ¦':') LABEL y INTO m", "is between"),
    (_T + "COLUMN ¦[a, b] LABEL y INTO m", "is no column"),
    (_T + "COLUMN ¦3 LABEL y INTO m", "is no column"),
    (_T + "COLUMN *, ¦* LABEL y INTO m", "* is there twice"),
]  # fmt: skip
