CREATE TABLE IF NOT EXISTS shop.users (
  user_id BIGINT NOT NULL,
  name STRING,
  city STRING,
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'bucket' = '4'
);
